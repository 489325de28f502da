"""The grammar of revisions: text -> what it asks for, without knowing any snapshot.

A text has one reading, but for `:/fix~2`: an intent may hold a `~2` itself, so it is read first as an intent that
ends so, then as the snapshot two before the one that fixes something. Ranges are told apart in the same way: an
intent, a name may hold `..`, so every place is offered where a range could be cut, and what resolves decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from git_envhist.errors import UsageError
from git_envhist.lazy import dataclass, pattern
from git_envhist.model import VerdictStatus


@dataclass(frozen=True, slots=True)
class Newest:
    """`@`"""


@dataclass(frozen=True, slots=True)
class Now:
    """`now`: the environment as it is."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """`@{10:27}`, `laptop/app-1a2b3c@{2 hours ago}`"""

    time: str
    timeline: str | None = None


@dataclass(frozen=True, slots=True)
class ByIntent:
    """`:/auth refactor`"""

    text: str


@dataclass(frozen=True, slots=True)
class ByVerdict:
    """`good`, `bad@{2}`: the n-th newest."""

    status: VerdictStatus
    nth: int = 1


@dataclass(frozen=True, slots=True)
class BareWord:
    """A name, an id, a timeline, a git revision or a time: known only when it is resolved."""

    text: str


@dataclass(frozen=True, slots=True)
class Ancestor:
    """`<base>~3`: so many before it on its timeline."""

    base: Revision
    steps: int


Revision = Newest | Now | AtTime | ByIntent | ByVerdict | BareWord | Ancestor


@dataclass(frozen=True, slots=True)
class RangeSplit:
    """One way to read a text as a range; an empty end is the newest snapshot, as git's is HEAD."""

    before: str
    after: str


JUDGED = {"good": VerdictStatus.PASS, "bad": VerdictStatus.FAIL}

RESERVED = frozenset({"@", "HEAD", "now", *JUDGED})
"""Words of the grammar, which no name can take."""

STEP = pattern(r"(?P<base>.+)~(?P<steps>[0-9]{0,9})", re.DOTALL)
BRACES = pattern(r"(?P<of>.*)@\{(?P<inside>[^{}]*)\}", re.DOTALL)
PARENTS_HINT = "'^' asks git for parents; on a timeline it is '@~1'"


def readings(text: str) -> tuple[Revision, ...]:
    """The ways in which a text can be read, to be tried in this order."""
    if text.startswith(":/"):
        return tuple(_intent_readings(text))
    return (_read(text),)


def shorten(text: str) -> str:
    """The base of a text that was read as `<base>~n`."""
    return text[: text.rindex("~")]


def range_cuts(text: str) -> tuple[RangeSplit, ...]:
    """The ways in which a text can be cut into the two ends of a range, from left to right."""
    places = re.finditer(r"(?<!\.)\.\.(?!\.)", text)
    cuts = (RangeSplit(text[: place.start()], text[place.end() :]) for place in places)
    return tuple(cut for cut in cuts if cut.before or cut.after)


def why_not_a_name(name: str) -> str | None:
    """What a name must not be, so that it can be typed where a revision stands; None where it is fine."""
    if not name or name != name.strip() or not name.isprintable():
        return "empty, or with blanks or unprintable characters around or in it"
    if name in RESERVED or name.isdigit():
        return "a word that already means something"
    if name.startswith((":", "-", "~", "^")) or ".." in name or "@{" in name or STEP.fullmatch(name):
        return "spelled as a revision"
    return None


def _intent_readings(text: str) -> Iterator[Revision]:
    wanted = text.removeprefix(":/")
    if not wanted.strip():
        raise UsageError(f"no intent is asked for: '{text}'", hint="write a part of it: ':/auth refactor'")
    yield ByIntent(wanted)
    if (step := STEP.fullmatch(text)) and step["base"].removeprefix(":/").strip():
        for base in _intent_readings(step["base"]):
            yield Ancestor(base, _steps(step))


def _read(text: str) -> Revision:
    _refuse_what_is_no_revision(text)
    if text == "@":
        return Newest()
    if text == "now":
        return Now()
    if text in JUDGED:
        return ByVerdict(JUDGED[text])
    if step := STEP.fullmatch(text):
        return Ancestor(_read_base(step["base"], text), _steps(step))
    if braces := BRACES.fullmatch(text):
        return _read_braces(braces["of"], braces["inside"])
    return BareWord(text)


def _read_base(base: str, text: str) -> Revision:
    revision = _read(base)
    if isinstance(revision, Now):
        raise UsageError(
            f"the live environment stands on no timeline: '{text}'", hint="the newest snapshot is '@'"
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


def _refuse_what_is_no_revision(text: str) -> None:
    if not text:
        raise UsageError("an empty revision", hint="the newest snapshot is '@'")
    # Git would read `@^` as a parent of HEAD, but `@` means the newest snapshot here.
    if text.startswith(("^", "@^")):
        raise UsageError(f"not a revision here: '{text}'", hint=PARENTS_HINT)
