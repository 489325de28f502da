"""Parse revisions; the snapshots are not needed for that (pure).

A text has one reading, except `:/fix~2`: an intent may contain `~2`, so the text is read as an intent first, then as
the second snapshot before the one with the intent `fix`. In the same way an intent or a name may contain `..`: each
place where a range could be split is returned, and the split with two existing ends is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from git_envhist.errors import UsageError
from git_envhist.lazy import dataclass, pattern
from git_envhist.model import VerdictStatus


@dataclass(frozen=True, slots=True)
class Newest:
    """`@`: the newest snapshot."""


@dataclass(frozen=True, slots=True)
class WorkingTree:
    """`now`: the working tree as it is."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """`@{10:27}`, `laptop/app-1a2b3c@{2 hours ago}`: the newest snapshot at that time."""

    time: str
    timeline: str | None = None


@dataclass(frozen=True, slots=True)
class ByIntent:
    """`:/auth refactor`: a snapshot by its intent."""

    text: str


@dataclass(frozen=True, slots=True)
class ByVerdict:
    """`good`, `bad@{2}`: the n-th newest snapshot that passed or failed its check."""

    status: VerdictStatus
    nth: int = 1


@dataclass(frozen=True, slots=True)
class BareWord:
    """A name, an id, a timeline, a git revision or a time; resolving it shows which."""

    text: str


@dataclass(frozen=True, slots=True)
class Ancestor:
    """`<base>~3`: the third snapshot before it on its timeline."""

    base: Revision
    steps: int


Revision = Newest | WorkingTree | AtTime | ByIntent | ByVerdict | BareWord | Ancestor


@dataclass(frozen=True, slots=True)
class RangeSplit:
    """A possible split of a range; an empty end is the newest snapshot, as HEAD is for git."""

    before: str
    after: str


JUDGED = {"good": VerdictStatus.PASS, "bad": VerdictStatus.FAIL}

RESERVED = frozenset({"@", "HEAD", "now", *JUDGED})
"""Words of the grammar, which cannot be names."""

STEP = pattern(r"(?P<base>.+)~(?P<steps>[0-9]{0,9})", re.DOTALL)
BRACES = pattern(r"(?P<of>.*)@\{(?P<inside>[^{}]*)\}", re.DOTALL)
PARENTS_HINT = "'^' asks git for parents; on a timeline it is '@~1'"


def readings(text: str) -> tuple[Revision, ...]:
    """Return the readings of a text in the order in which they are tried."""
    if text.startswith(":/"):
        return tuple(_intent_readings(text))
    return (_read(text),)


def base_of(text: str) -> str:
    """Return the base of a text of the form `<base>~n`."""
    return text[: text.rindex("~")]


def range_splits(text: str) -> tuple[RangeSplit, ...]:
    """Return the ways to split a text into the two ends of a range, from left to right."""
    places = re.finditer(r"(?<!\.)\.\.(?!\.)", text)
    cuts = (RangeSplit(text[: place.start()], text[place.end() :]) for place in places)
    return tuple(cut for cut in cuts if cut.before or cut.after)


def path_splits(text: str) -> Iterator[tuple[str, str]]:
    """Yield (revision, path) for each way to read `<rev>:<path>`; a colon within braces belongs to a time."""
    for at, letter in enumerate(text):
        in_braces = text.rfind("{", 0, at) > text.rfind("}", 0, at)
        if letter == ":" and 0 < at < len(text) - 1 and not in_braces:
            yield text[:at], text[at + 1 :]


def why_not_a_name(name: str) -> str | None:
    """Return why a name cannot be typed as a revision; None if it can."""
    if not name or name != name.strip() or not name.isprintable():
        return "empty, or with unprintable characters or with blanks at an end"
    if name in RESERVED or name.isdigit():
        return "a reserved word or a number"
    if name.startswith((":", "-", "~", "^")) or ".." in name or "@{" in name or STEP.fullmatch(name):
        return "spelled as a revision"
    return None


def _intent_readings(text: str) -> Iterator[Revision]:
    wanted = text.removeprefix(":/")
    if not wanted.strip():
        raise UsageError(f"no intent given: '{text}'", hint="write a part of it: ':/auth refactor'")
    yield ByIntent(wanted)
    if (step := STEP.fullmatch(text)) and step["base"].removeprefix(":/").strip():
        for base in _intent_readings(step["base"]):
            yield Ancestor(base, _steps(step))


def _read(text: str) -> Revision:
    _refuse_invalid(text)
    if text == "@":
        return Newest()
    if text == "now":
        return WorkingTree()
    if text in JUDGED:
        return ByVerdict(JUDGED[text])
    if step := STEP.fullmatch(text):
        return Ancestor(_read_base(step["base"], text), _steps(step))
    if braces := BRACES.fullmatch(text):
        return _read_braces(braces["of"], braces["inside"])
    return BareWord(text)


def _read_base(base: str, text: str) -> Revision:
    revision = _read(base)
    if isinstance(revision, WorkingTree):
        raise UsageError(
            f"'now' is not a snapshot of a timeline: '{text}'", hint="the newest snapshot is '@'"
        )
    return revision


def _read_braces(of: str, inside: str) -> Revision:
    if of not in JUDGED:
        return AtTime(inside, of or None)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", inside):
        raise UsageError(f"not a count: '{of}@{{{inside}}}'", hint=f"the second newest is '{of}@{{2}}'")
    return ByVerdict(JUDGED[of], int(inside))


def _steps(step: re.Match[str]) -> int:
    return int(step["steps"] or 1)


def _refuse_invalid(text: str) -> None:
    if not text:
        raise UsageError("empty revision", hint="the newest snapshot is '@'")
    # git reads `@^` as a parent of HEAD, but here `@` is the newest snapshot.
    if text.startswith(("^", "@^")):
        raise UsageError(f"not a revision here: '{text}'", hint=PARENTS_HINT)
