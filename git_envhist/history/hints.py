"""Says why a text means no snapshot, and what to type next."""

from __future__ import annotations

from datetime import datetime

from git_envhist.errors import SnapshotNotFound, UsageError
from git_envhist.history.intents import by_intent
from git_envhist.history.revisions import (
    PARENTS_HINT,
    Ancestor,
    AtTime,
    BareWord,
    ByIntent,
    ByVerdict,
    Revision,
    readings,
    shorten,
)
from git_envhist.history.timeline import SHORTEST_ID, Catalog, by_verdict, is_id, own_verdict
from git_envhist.history.times import SPELLINGS, parse_moment, printed_time
from git_envhist.model import VerdictStatus

SPELLED = f"a time is one of: {SPELLINGS}"
NEWEST, BEFORE = "the newest is '@'", "the one before the newest is '@~1'"
SPELLED_OTHERWISE = {"latest": NEWEST, "last": NEWEST, "newest": NEWEST, "previous": BEFORE, "prev": BEFORE}
NOTHING_HERE = "nothing was captured here yet"
BEGIN = "git envlog capture"
NOTHING_CAPTURED = f"{NOTHING_HERE}: {BEGIN}"


def nothing_captured(world: Catalog) -> str:
    """What to type where this working tree has no moment; others may."""
    return f"{NOTHING_HERE}: {_how_to_begin(world)}"


def _how_to_begin(world: Catalog) -> str:
    if world.others:
        return f"{BEGIN}; what others have: git envlog --all"
    return f"{BEGIN}; what was pushed elsewhere: git envlog fetch" if world.has_remote else BEGIN


def not_found_error(
    text: str, world: Catalog, now: datetime, *, commit: str | None = None, before_base: int | None = None
) -> SnapshotNotFound:
    """The error for a text that means nothing.

    `commit` is what git takes it for; `before_base` how many snapshots stand before what its `~n` counts from.
    """
    if world.is_path(text):
        # Whoever wants to look shall not be led to what writes.
        path = _quoted(text)
        told = f"it is a path: git envlog -- {path} or git envdiff -- {path} tells of it"
        return SnapshotNotFound(text, hint=f"{told}, git envrestore @ -- {path} brings it back")
    dropped = world.dropped(text) if is_id(text) else None
    if dropped is not None:
        return SnapshotNotFound(text, hint=f"it was dropped; bring it back: git envlog undrop {dropped[:12]}")
    if commit is not None:
        return SnapshotNotFound(text, hint=_hint_for_code(commit))
    if text == "@" and not world.own.snapshots:
        # Nobody need have typed that: it is what most commands go by where no moment is named.
        return SnapshotNotFound(text, hint=_how_to_begin(world), message=NOTHING_HERE)
    return SnapshotNotFound(text, hint=_hint(readings(text)[-1], text, world, now, before_base))


def refuse_as_range(text: str) -> UsageError:
    """The error for dots that cut no range."""
    hint = "a range is 'a..b', 'a..' or '..b'"
    first, dots, last = text.partition("...")
    if dots and first and last and ".." not in last:
        hint = f"timelines do not branch, so there is no 'a...b'; the two ends: {first}..{last}"
    elif dots:
        hint = "timelines do not branch, so there is no 'a...b'; " + hint
    return UsageError(f"not a range: '{text}'", hint=hint)


def _hint(way: Revision, text: str, world: Catalog, now: datetime, before_base: int | None) -> str | None:
    match way:
        case BareWord(word):
            return _hint_for_word(word, world, now)
        case Ancestor(base, _) if before_base is None:
            return _hint(base, shorten(text), world, now, None)
        case Ancestor():
            return _hint_for_steps(text, before_base or 0)
        case AtTime(time, timeline):
            return _hint_for_time(time, timeline, world, now)
        case _ if not world.own.snapshots:
            return nothing_captured(world)
        case ByVerdict(status, _):
            return _hint_for_verdict(status, world)
        case ByIntent():
            return "the case counts; 'git envlog' lists every intent"
    return None


def _hint_for_word(word: str, world: Catalog, now: datetime) -> str | None:
    if not world.own.snapshots:
        return nothing_captured(world)
    if word.lower() in SPELLED_OTHERWISE:
        return SPELLED_OTHERWISE[word.lower()]
    if "^" in word:
        return PARENTS_HINT
    if ".." in word:
        return "one snapshot is wanted here, not a range"
    if 0 < len(word) < SHORTEST_ID and _is_short_id(word):
        return f"an id takes at least {SHORTEST_ID} digits; a number of steps back is '@~{word}'"
    if parse_moment(word, now) is not None:
        return _hint_for_time(word, None, world, now)
    if word.replace(":", "").isdecimal() and ":" in word:
        return SPELLED
    revision, colon, path = word.partition(":")
    if colon and revision and path:
        words = f"{_quoted(revision)} -- {_quoted(path)}"
        return (
            f"a file of a snapshot: git envlog show {words} shows it, git envrestore {words} brings it back"
        )
    if by_intent(world.own, word):
        return f"did you mean {_quoted(':/' + word)}? so the words of an intent are spelled"
    return _similar_name(word, world)


def _is_short_id(word: str) -> bool:
    return any(letter.isdigit() for letter in word) and all(
        letter in "0123456789abcdef" for letter in word.lower()
    )


def _hint_for_code(commit: str) -> str:
    return (
        f"nothing was captured while code commit {commit[:7]} was checked out; what was captured before: "
        f'git envlog --until="$(git log -1 --format=%cI {commit[:12]})"'
    )


def _similar_name(word: str, world: Catalog) -> str | None:
    from difflib import get_close_matches  # loaded late: keeps every command fast that finds its snapshot

    if word in world.others:
        return f"nothing of the timeline '{word}' can be read; 'git envlog fsck' says why"
    names = {name for snapshot in world.own.snapshots for name in snapshot.names}
    names |= {"good", "bad", "now", world.own.name, *world.others}
    folded = {name.lower(): name for name in sorted(names)}
    close = get_close_matches(word.lower(), list(folded), n=1, cutoff=0.75)
    return f"did you mean '{folded[close[0]]}'?" if close else None


def _hint_for_steps(text: str, before_base: int) -> str:
    base = shorten(text)
    if before_base == 0:
        return f"'{base}' is the oldest of its timeline"
    return f"the oldest is '{base}~{before_base}'"


def _hint_for_time(time: str, name: str | None, world: Catalog, now: datetime) -> str:
    timeline = world.own if name is None else world.timeline(name)
    if timeline is None:
        return f"no timeline is called '{name}': git envlog --all"
    if time.isdigit():
        return f"a time stands in the braces; so many steps back is '{name or '@'}~{time}'"
    if parse_moment(time, now) is None:
        return SPELLED
    if not timeline.snapshots:
        return NOTHING_CAPTURED
    return f"the oldest snapshot is from {printed_time(timeline.snapshots[-1].at, now)}"


def _hint_for_verdict(status: VerdictStatus, world: Catalog) -> str:
    word = "passed" if status is VerdictStatus.PASS else "failed"
    count = len(by_verdict(world.own, status))
    if count:
        return f"only {count} {word}: git envlog --verdict={status.value}"
    checked = sum(own_verdict(snapshot) is not None for snapshot in world.own.snapshots)
    if not checked:
        older = "@~1" if len(world.own.snapshots) > 1 else "@"
        return (
            f"no moment here was checked yet: choose one and check it: git envlog verify {older} -- <command>"
        )
    return f"no check {word} yet, of {checked} that ran: git envlog verify @"


def _quoted(path: str) -> str:
    from shlex import quote  # loaded late: keeps every command fast that finds its snapshot

    return quote(path)
