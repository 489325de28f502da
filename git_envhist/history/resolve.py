"""Resolves revisions: collects every snapshot that a text can mean, and takes it only where that is one.

The law: for every line of a timeline its id, its printed time, its name and `:/its intent` each lead to that line, or
list the candidates. So a word is looked up as everything it can be, and nothing shadows anything silently. Only
what is no more than near (a time between two snapshots, a name on another timeline) yields to what is exact.
"""

from __future__ import annotations

from datetime import datetime

from git_envhist.errors import AmbiguousRevision, EnvhistError, SnapshotNotFound, UsageError
from git_envhist.history.revisions import (
    PARENTS_HINT,
    RESERVED,
    Ancestor,
    AtTime,
    BareWord,
    ByIntent,
    ByVerdict,
    Newest,
    Now,
    RangeSplit,
    Revision,
    range_cuts,
    readings,
    shorten,
)
from git_envhist.history.timeline import (
    SHORTEST_ID,
    Catalog,
    Position,
    Timeline,
    by_external_id,
    by_head,
    by_id,
    by_name,
    by_printed_time,
    by_time,
    by_verdict,
    distinct,
    is_id,
    own_verdict,
)
from git_envhist.history.times import SPELLINGS, parse_moment, printed_time
from git_envhist.history.titles import by_intent, label_candidates
from git_envhist.lazy import dataclass
from git_envhist.model import Snapshot, VerdictStatus

# Says why a text means no snapshot, and what to type next.

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


LIVE = Now()

LONG_ID = 16
"""An id of so many digits is not shared by chance: no other timeline is read to look for a second one."""

End = Position | Now


def resolve(text: str, world: Catalog, now: datetime) -> Snapshot:
    """The one snapshot that a text means."""
    return locate(text, world, now).snapshot


def locate(text: str, world: Catalog, now: datetime) -> Position:
    """The one snapshot that a text means, and where it stands."""
    end = resolve_end(text, world, now)
    if isinstance(end, Now):
        raise UsageError(
            "a snapshot is wanted, not the environment: 'now'", hint="the newest snapshot is '@'"
        )
    return end


def resolve_end(text: str, world: Catalog, now: datetime) -> End:
    """What a text means where the live environment may stand too."""
    if end := find_end(text, world, now):
        return end
    raise no_match_error(text, world, now)


def no_match_error(text: str, world: Catalog, now: datetime) -> SnapshotNotFound:
    """The error for a text that means no snapshot, with the hint that helps."""
    way = readings(text)[-1]
    commit = world.git.commit_of(text) if _asks_git(way, world) else None
    return not_found_error(
        text, world, now, commit=commit, before_base=_count_before_base(way, text, world, now)
    )


def find_end(text: str, world: Catalog, now: datetime) -> End | None:
    """The same, but None where the text means nothing."""
    if text == "now":
        return LIVE
    spots = _meanings(text, world, now)
    if len(spots) > 1:
        raise AmbiguousRevision(text, label_candidates(spots, now))
    return spots[0] if spots else None


# --- what a text can mean


def _meanings(text: str, world: Catalog, now: datetime) -> tuple[Position, ...]:
    """Every snapshot that a text can mean; the first of its readings that finds any decides."""
    named = () if text in RESERVED else by_name(world.own, text)
    try:
        ways = readings(text)
    except UsageError:
        if named:
            return named
        raise
    for way in ways:
        if found := _find(way, text, world, now):
            return distinct([*named, *found])
    return named


def _find(revision: Revision, text: str, world: Catalog, now: datetime) -> tuple[Position, ...]:
    exact = _find_here(revision, text, world, now)
    if exact and len(text) >= LONG_ID and is_id(text):
        return exact
    commit = world.git.commit_of(text) if _asks_git(revision, world) else None
    # A commit that was never captured is meant all the same: no time, no foreign name stands in for it.
    if exact or commit:
        return distinct([*exact, *_taken_at(commit, world)])
    return _find_near(revision, text, world, now)


def _asks_git(revision: Revision, world: Catalog) -> bool:
    """Whether git may know the whole text: `HEAD~1`, `main@{1}`; not `@~1`, for git's `@` is HEAD."""
    match revision:
        case BareWord():
            return True
        case Ancestor(base, _):
            return _asks_git(base, world)
        case AtTime(_, timeline):
            return timeline is not None and world.timeline(timeline) is None
    return False


def _find_here(revision: Revision, text: str, world: Catalog, now: datetime) -> tuple[Position, ...]:
    """The snapshots that a text means without asking git."""
    match revision:
        case Newest():
            return world.own.newest()
        case ByVerdict(status, nth):
            return by_verdict(world.own, status)[nth - 1 : nth]
        case ByIntent(wanted):
            return by_intent(world.own, wanted)
        case AtTime(time, name):
            timeline = world.own if name is None else world.timeline(name)
            moment = parse_moment(time, now)
            return by_time(timeline, moment) if timeline and moment else ()
        case Ancestor(base, steps):
            return _step(_find_base(base, shorten(text), world, now), steps)
        case BareWord(word):
            return _find_word(word, world, now)
    return ()


def _find_near(revision: Revision, text: str, world: Catalog, now: datetime) -> tuple[Position, ...]:
    """What a text means where nothing bears it: a time between two snapshots, a name on another timeline."""
    match revision:
        case Ancestor(base, steps) if not _find_base(base, shorten(text), world, now):
            return _step(_find_near(base, shorten(text), world, now), steps)
        case BareWord(word):
            if moment := parse_moment(word, now):
                return by_time(world.own, moment)
            return distinct(spot for timeline in world.timelines() for spot in by_name(timeline, word))
    return ()


def _find_base(base: Revision, text: str, world: Catalog, now: datetime) -> tuple[Position, ...]:
    """What `~n` counts from; no code commit: from there git counts itself."""
    named = () if text in RESERVED else by_name(world.own, text)
    return distinct([*named, *_find_here(base, text, world, now)])


def _step(spots: tuple[Position, ...], steps: int) -> tuple[Position, ...]:
    return tuple(before for spot in spots for before in spot.back(steps))


def _find_word(word: str, world: Catalog, now: datetime) -> tuple[Position, ...]:
    """The snapshots that bear a word: as a name, in their id, as what another program calls
    them, as their timeline's newest, as their printed time."""
    if is_id(word) and len(word) >= LONG_ID and (own := by_id(world.own, word)):
        # As git is not asked then, so are the other timelines not for their names.
        return distinct([*by_name(world.own, word), *own])
    moment = parse_moment(word, now)
    timeline = world.timeline(word)
    return distinct(
        [
            *by_name(world.own, word),
            *by_external_id(world.own, word),
            *(_find_by_id(word, world) if is_id(word) else ()),
            *(timeline.newest() if timeline else ()),
            *(by_printed_time(world.own, moment) if moment else ()),
        ]
    )


def _find_by_id(prefix: str, world: Catalog) -> tuple[Position, ...]:
    own = by_id(world.own, prefix)
    if own and len(prefix) >= LONG_ID:
        return own
    return distinct(spot for timeline in world.timelines() for spot in by_id(timeline, prefix))


def _taken_at(commit: str | None, world: Catalog) -> tuple[Position, ...]:
    """The newest taken when that code commit was checked out; the snapshot itself, where the commit is one."""
    if commit is None:
        return ()
    return _find_by_id(commit, world) or by_head(world.own, commit)


def _count_before_base(way: Revision, text: str, world: Catalog, now: datetime) -> int | None:
    """For `<base>~n` with a base that is here: how many snapshots stand before it."""
    if not isinstance(way, Ancestor):
        return None
    base = shorten(text)
    bases = _find_base(way.base, base, world, now) or _find_near(way.base, base, world, now)
    return max((spot.count_before for spot in bases), default=None)


# Ranges: cuts `a..b` where both ends mean something, and takes the snapshots between them.


@dataclass(frozen=True, slots=True)
class ResolvedRange:
    """A resolved range; `start` None where a single revision was given."""

    start: End | None
    end: End


def resolve_range(text: str, world: Catalog, now: datetime) -> ResolvedRange:
    """The two ends of `a..b`, or the single end of a text that means one snapshot as a whole."""
    if ".." not in text:
        return ResolvedRange(None, resolve_end(text, world, now))
    if whole := _find_whole(text, world, now):
        return ResolvedRange(None, whole)
    return _only_cut(text, range_cuts(text), world, now)


def snapshots_of_range(text: str, world: Catalog, now: datetime) -> tuple[Snapshot, ...] | None:
    """Return the snapshots of a range, newest first; None if the text means one snapshot as a whole."""
    span = resolve_range(text, world, now)
    return None if span.start is None else snapshots_in_range(span, world.own)


def snapshots_in_range(span: ResolvedRange, own: Timeline) -> tuple[Snapshot, ...]:
    """The snapshots of a range, newest first: up to its end, without its start and what is older."""
    end = _spot(span.end, own)
    if end is None:
        return ()
    reached = end.timeline.snapshots[end.index :]
    start = None if span.start is None else _spot(span.start, own)
    if start is None:
        return reached
    # As in git, what the start can reach is left out; a start on another timeline reaches nothing here.
    older = {snapshot.id for snapshot in start.timeline.snapshots[start.index :]}
    return tuple(snapshot for snapshot in reached if snapshot.id not in older)


def _spot(end: Position | Now, own: Timeline) -> Position | None:
    if isinstance(end, Now):
        return next(own.spots(), None)
    return end


# --- where to cut


def _find_whole(text: str, world: Catalog, now: datetime) -> End | None:
    """An intent may hold dots: where a text means something as it stands, it is no range."""
    # No ref and no name holds two of them: unless git is asked for a message or a time, it need not be asked.
    if not text.startswith(":/") and "{" not in text and not by_name(world.own, text):
        return None
    try:
        return find_end(text, world, now)
    except UsageError:
        return None


def _only_cut(text: str, cuts: tuple[RangeSplit, ...], world: Catalog, now: datetime) -> ResolvedRange:
    if not cuts:
        raise refuse_as_range(text)
    spans: dict[RangeSplit, ResolvedRange] = {}
    problems: list[EnvhistError] = []
    for cut in cuts:
        try:
            spans[cut] = _resolve_cut(cut, world, now)
        except (SnapshotNotFound, AmbiguousRevision, UsageError) as problem:
            problems.append(problem)
    if not spans:
        raise no_match_error(text, world, now) if world.is_path(text) else problems[0]
    if len({_ids(span) for span in spans.values()}) > 1:
        raise AmbiguousRevision(text, tuple(f"'{cut.before}' .. '{cut.after}'" for cut in spans))
    return next(iter(spans.values()))


def _resolve_cut(cut: RangeSplit, world: Catalog, now: datetime) -> ResolvedRange:
    start = resolve_end(cut.before or "@", world, now)
    return ResolvedRange(start, resolve_end(cut.after or "@", world, now))


def _ids(span: ResolvedRange) -> tuple[str, str]:
    return _id_of(span.start), _id_of(span.end)


def _id_of(end: End | None) -> str:
    return end.snapshot.id if isinstance(end, Position) else "now"
