"""Resolve revisions and ranges to snapshots.

The rule: the id, the printed time, a name and `:/intent` of every line of a list each lead to that line, or list the
candidates. So a word is looked up as everything that it can be, and more than one match is an error with the
candidates. An inexact match (a time between two snapshots, a name on another timeline) counts only if there is no exact
one.

The first half of the module makes the errors for a text that matches nothing, with a hint what to type instead.
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
    RangeSplit,
    Revision,
    WorkingTree,
    base_of,
    path_splits,
    range_splits,
    readings,
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
from git_envhist.history.times import SPELLINGS, parse_time_span, printed_time
from git_envhist.history.titles import by_intent, label_candidates
from git_envhist.lazy import dataclass
from git_envhist.model import Snapshot, VerdictStatus

# Errors for a text that means no snapshot.

SPELLED = f"a time is one of: {SPELLINGS}"
NEWEST, BEFORE = "the newest is '@'", "the one before the newest is '@~1'"
SPELLED_OTHERWISE = {"latest": NEWEST, "last": NEWEST, "newest": NEWEST, "previous": BEFORE, "prev": BEFORE}
NOTHING_HERE = "nothing was captured here yet"
BEGIN = "git envlog capture"
NOTHING_CAPTURED = f"{NOTHING_HERE}: {BEGIN}"


def nothing_captured(catalog: Catalog) -> str:
    """Return the hint for a working tree without snapshots; other timelines may have some."""
    return f"{NOTHING_HERE}: {_how_to_begin(catalog)}"


def _how_to_begin(catalog: Catalog) -> str:
    if catalog.others:
        return f"{BEGIN}; snapshots of other timelines: git envlog --all"
    return f"{BEGIN}; snapshots of a remote: git envlog fetch" if catalog.has_remote else BEGIN


def not_found_error(
    text: str, catalog: Catalog, now: datetime, *, commit: str | None = None, before_base: int | None = None
) -> SnapshotNotFound:
    """Return the error for a text that means no snapshot.

    `commit`: the code commit of that name; `before_base`: the number of snapshots before the base of `~n`.
    """
    if catalog.is_path(text):
        # The commands that only read come first.
        path = _quoted(text)
        show = f"it is a path; show its changes: git envlog -- {path} or git envdiff -- {path}"
        return SnapshotNotFound(text, hint=f"{show}; restore it: git envrestore @ -- {path}")
    dropped = catalog.dropped(text) if is_id(text) else None
    if dropped is not None:
        return SnapshotNotFound(text, hint=f"it was dropped; bring it back: git envlog undrop {dropped[:12]}")
    if commit is not None:
        return SnapshotNotFound(text, hint=_hint_for_code(commit))
    if text == "@" and not catalog.own.snapshots:
        # `@` is the default of most commands, so the user need not have typed it.
        return SnapshotNotFound(text, hint=_how_to_begin(catalog), message=NOTHING_HERE)
    revision = readings(text)[-1]
    hint = _hint(revision, text, catalog, now, before_base)
    return SnapshotNotFound(text, hint=hint, message=_unreadable_time(revision, text, now))


def _unreadable_time(revision: Revision, text: str, now: datetime) -> str | None:
    """Return the message for braces that contain no time; None if they contain one, or for other texts."""
    if not isinstance(revision, AtTime) or revision.time.isdigit() or parse_time_span(revision.time, now):
        return None
    return f"no snapshot matches '{text}': '{revision.time}' is not a time"


def range_error(text: str) -> UsageError:
    """Return the error for a text with dots that is no range."""
    hint = "a range is 'a..b', 'a..' or '..b'"
    first, dots, last = text.partition("...")
    if dots and first and last and ".." not in last:
        hint = f"timelines have no branches; to compare the two ends: {first}..{last}"
    elif dots:
        hint = "timelines have no branches; " + hint
    return UsageError(f"not a range: '{text}'", hint=hint)


def _hint(
    revision: Revision, text: str, catalog: Catalog, now: datetime, before_base: int | None
) -> str | None:
    match revision:
        case BareWord(word):
            return _hint_for_word(word, catalog, now)
        case Ancestor(base, _) if before_base is None:
            return _hint(base, base_of(text), catalog, now, None)
        case Ancestor():
            return _hint_for_steps(text, before_base or 0)
        case AtTime(time, timeline):
            return _hint_for_time(time, timeline, catalog, now)
        case _ if not catalog.own.snapshots:
            return nothing_captured(catalog)
        case ByVerdict(status, _):
            return _hint_for_verdict(status, catalog)
        case ByIntent():
            return "upper and lower case differ; 'git envlog' lists every intent"
    return None


def _hint_for_word(word: str, catalog: Catalog, now: datetime) -> str | None:
    if not catalog.own.snapshots:
        return nothing_captured(catalog)
    if word.lower() in SPELLED_OTHERWISE:
        return SPELLED_OTHERWISE[word.lower()]
    if "^" in word:
        return PARENTS_HINT
    if ".." in word and not word.startswith("../"):
        return "give one snapshot, not a range"
    if 0 < len(word) < SHORTEST_ID and _is_short_id(word):
        steps = f"; a number of steps back is '@~{word}'" if word.isdecimal() else ""
        return f"an id takes at least {SHORTEST_ID} digits{steps}"
    if parse_time_span(word, now) is not None:
        return _hint_for_time(word, None, catalog, now)
    if word.replace(":", "").isdecimal() and ":" in word:
        return SPELLED
    for revision, path in path_splits(word):
        words = f"{_quoted(revision)} -- {_quoted(path)}"
        return f"to show a file of a snapshot: git envlog show {words}; to restore it: git envrestore {words}"
    if by_intent(catalog.own, word):
        return (
            f"did you mean {_quoted(':/' + word)}? It finds the newest snapshot with that text in its intent"
        )
    return _similar_name(word, catalog)


def _is_short_id(word: str) -> bool:
    return any(letter.isdigit() for letter in word) and all(
        letter in "0123456789abcdef" for letter in word.lower()
    )


def _hint_for_code(commit: str) -> str:
    return (
        f"no snapshot was taken while code commit {commit[:7]} was checked out; earlier snapshots: "
        f'git envlog --until="$(git log -1 --format=%cI {commit[:12]})"'
    )


def _similar_name(word: str, catalog: Catalog) -> str | None:
    from difflib import get_close_matches  # loaded late: only an error needs it

    if word in catalog.others:
        return f"the timeline '{word}' cannot be read; check it: git envlog fsck"
    names = {name for snapshot in catalog.own.snapshots for name in snapshot.names}
    names |= {"good", "bad", "now", catalog.own.name, *catalog.others}
    folded = {name.lower(): name for name in sorted(names)}
    close = get_close_matches(word.lower(), list(folded), n=1, cutoff=0.75)
    return f"did you mean '{folded[close[0]]}'?" if close else None


def _hint_for_steps(text: str, before_base: int) -> str:
    base = base_of(text)
    if before_base == 0:
        return f"'{base}' is the oldest of its timeline"
    return f"the oldest is '{base}~{before_base}'"


def _hint_for_time(time: str, name: str | None, catalog: Catalog, now: datetime) -> str:
    timeline = catalog.own if name is None else catalog.timeline(name)
    if timeline is None:
        return f"no timeline is named '{name}'; to list them: git envlog --all"
    if time.isdigit():
        return f"braces contain a time; a number of steps back is '{name or '@'}~{time}'"
    if parse_time_span(time, now) is None:
        return SPELLED
    if not timeline.snapshots:
        return NOTHING_CAPTURED
    return f"the oldest snapshot is from {printed_time(timeline.snapshots[-1].at, now)}"


def _hint_for_verdict(status: VerdictStatus, catalog: Catalog) -> str:
    word = "passed" if status is VerdictStatus.PASS else "failed"
    count = len(by_verdict(catalog.own, status))
    if count:
        return f"only {count} {word}: git envlog --verdict={status.value}"
    checked = sum(own_verdict(snapshot) is not None for snapshot in catalog.own.snapshots)
    if not checked:
        older = "@~1" if len(catalog.own.snapshots) > 1 else "@"
        return f"no snapshot was checked yet; to check one: git envlog verify {older} -- <command>"
    return f"no check {word} yet, of {checked} that ran: git envlog verify @"


def _quoted(path: str) -> str:
    from shlex import quote  # loaded late: only an error needs it

    return quote(path)


WORKING_TREE = WorkingTree()

LONG_ID = 16
"""Digits of an id that are unique beyond doubt: other timelines are not read for a second match."""

End = Position | WorkingTree


def resolve(text: str, catalog: Catalog, now: datetime) -> Snapshot:
    """Return the snapshot that a revision means; raise `SnapshotNotFound` or `AmbiguousRevision`."""
    return locate(text, catalog, now).snapshot


def locate(text: str, catalog: Catalog, now: datetime) -> Position:
    """Return the snapshot that a revision means, with its timeline."""
    end = resolve_end(text, catalog, now)
    if isinstance(end, WorkingTree):
        raise UsageError("expected a snapshot: 'now'", hint="the newest snapshot is '@'")
    return end


def resolve_end(text: str, catalog: Catalog, now: datetime) -> End:
    """Return the snapshot that a text means, or `WorkingTree` for the working tree."""
    if end := find_end(text, catalog, now):
        return end
    raise not_found_error_for_text(text, catalog, now)


def not_found_error_for_text(text: str, catalog: Catalog, now: datetime) -> SnapshotNotFound:
    """Return the error for a text that means no snapshot."""
    revision = readings(text)[-1]
    commit = catalog.git.commit_of(text) if _asks_git(revision, catalog) else None
    return not_found_error(
        text, catalog, now, commit=commit, before_base=_count_before_base(revision, text, catalog, now)
    )


def find_end(text: str, catalog: Catalog, now: datetime) -> End | None:
    """Return what `resolve_end` returns, or None if the text means no snapshot."""
    if text == "now":
        return WORKING_TREE
    positions = _meanings(text, catalog, now)
    if len(positions) > 1:
        raise AmbiguousRevision(text, label_candidates(positions, now))
    return positions[0] if positions else None


# Find what a text can mean.


def _meanings(text: str, catalog: Catalog, now: datetime) -> tuple[Position, ...]:
    """Return every snapshot that a text can mean, by the first reading that finds any."""
    named = () if text in RESERVED else by_name(catalog.own, text)
    try:
        revisions = readings(text)
    except UsageError:
        if named:
            return named
        raise
    for revision in revisions:
        if found := _find(revision, text, catalog, now):
            return distinct([*named, *found])
    return named


def _find(revision: Revision, text: str, catalog: Catalog, now: datetime) -> tuple[Position, ...]:
    exact = _find_here(revision, text, catalog, now)
    if exact and len(text) >= LONG_ID and is_id(text):
        return exact
    commit = catalog.git.commit_of(text) if _asks_git(revision, catalog) else None
    # A code commit without a snapshot is still what the text means: an inexact match would be wrong.
    if exact or commit:
        return distinct([*exact, *_taken_at(commit, catalog)])
    return _find_near(revision, text, catalog, now)


def _asks_git(revision: Revision, catalog: Catalog) -> bool:
    """Return whether the text may be a git revision: `HEAD~1`, `main@{1}`; not `@~1`, since git's `@` is HEAD."""
    match revision:
        case BareWord():
            return True
        case Ancestor(base, _):
            return _asks_git(base, catalog)
        case AtTime(_, timeline):
            return timeline is not None and catalog.timeline(timeline) is None
    return False


def _find_here(revision: Revision, text: str, catalog: Catalog, now: datetime) -> tuple[Position, ...]:
    """Return the exact matches of a text, without asking git."""
    match revision:
        case Newest():
            return catalog.own.newest()
        case ByVerdict(status, nth):
            return by_verdict(catalog.own, status)[nth - 1 : nth]
        case ByIntent(wanted):
            return by_intent(catalog.own, wanted)
        case AtTime(time, name):
            timeline = catalog.own if name is None else catalog.timeline(name)
            time_span = parse_time_span(time, now)
            return by_time(timeline, time_span) if timeline and time_span else ()
        case Ancestor(base, steps):
            return _step(_find_base(base, base_of(text), catalog, now), steps)
        case BareWord(word):
            return _find_word(word, catalog, now)
    return ()


def _find_near(revision: Revision, text: str, catalog: Catalog, now: datetime) -> tuple[Position, ...]:
    """Return inexact matches: the snapshot before a time, a name on another timeline."""
    match revision:
        case Ancestor(base, steps) if not _find_base(base, base_of(text), catalog, now):
            return _step(_find_near(base, base_of(text), catalog, now), steps)
        case BareWord(word):
            if time_span := parse_time_span(word, now):
                return by_time(catalog.own, time_span)
            return distinct(
                position for timeline in catalog.timelines() for position in by_name(timeline, word)
            )
    return ()


def _find_base(base: Revision, text: str, catalog: Catalog, now: datetime) -> tuple[Position, ...]:
    """Return the snapshots that `~n` counts from; git itself counts from a code commit."""
    named = () if text in RESERVED else by_name(catalog.own, text)
    return distinct([*named, *_find_here(base, text, catalog, now)])


def _step(positions: tuple[Position, ...], steps: int) -> tuple[Position, ...]:
    return tuple(before for position in positions for before in position.back(steps))


def _find_word(word: str, catalog: Catalog, now: datetime) -> tuple[Position, ...]:
    """Return the snapshots that a word names: by name, id, external id, timeline (its newest) or printed time."""
    if is_id(word) and len(word) >= LONG_ID and (own := by_id(catalog.own, word)):
        # Reading the other timelines for their names would cost more than a certain match is worth.
        return distinct([*by_name(catalog.own, word), *own])
    time_span = parse_time_span(word, now)
    timeline = catalog.timeline(word)
    return distinct(
        [
            *by_name(catalog.own, word),
            *by_external_id(catalog.own, word),
            *(_find_by_id(word, catalog) if is_id(word) else ()),
            *(timeline.newest() if timeline else ()),
            *(by_printed_time(catalog.own, time_span) if time_span else ()),
        ]
    )


def _find_by_id(prefix: str, catalog: Catalog) -> tuple[Position, ...]:
    own = by_id(catalog.own, prefix)
    if own and len(prefix) >= LONG_ID:
        return own
    return distinct(position for timeline in catalog.timelines() for position in by_id(timeline, prefix))


def _taken_at(commit: str | None, catalog: Catalog) -> tuple[Position, ...]:
    """Return the newest snapshot taken at a code commit; if the commit is a snapshot itself, that one."""
    if commit is None:
        return ()
    return _find_by_id(commit, catalog) or by_head(catalog.own, commit)


def _count_before_base(revision: Revision, text: str, catalog: Catalog, now: datetime) -> int | None:
    """Return the number of snapshots before the base of `<base>~n`; None for another revision."""
    if not isinstance(revision, Ancestor):
        return None
    base = base_of(text)
    bases = _find_base(revision.base, base, catalog, now) or _find_near(revision.base, base, catalog, now)
    return max((position.count_before for position in bases), default=None)


# Ranges: split `a..b` where both ends mean a snapshot.


@dataclass(frozen=True, slots=True)
class ResolvedRange:
    """The ends of a range; `start` is None for a single revision."""

    start: End | None
    end: End


def resolve_range(text: str, catalog: Catalog, now: datetime) -> ResolvedRange:
    """Return the two ends of `a..b`, or the single end of a text that means one snapshot."""
    if ".." not in text:
        return ResolvedRange(None, resolve_end(text, catalog, now))
    if whole := _find_whole(text, catalog, now):
        return ResolvedRange(None, whole)
    return _only_cut(text, range_splits(text), catalog, now)


def snapshots_of_range(text: str, catalog: Catalog, now: datetime) -> tuple[Snapshot, ...] | None:
    """Return the snapshots of a range, newest first; None if the text means one snapshot."""
    span = resolve_range(text, catalog, now)
    return None if span.start is None else snapshots_in_range(span, catalog.own)


def snapshots_in_range(span: ResolvedRange, own: Timeline) -> tuple[Snapshot, ...]:
    """Return the snapshots of a range, newest first: its end, and back to its start, which is excluded."""
    end = _position(span.end, own)
    if end is None:
        return ()
    reached = end.timeline.snapshots[end.index :]
    start = None if span.start is None else _position(span.start, own)
    if start is None:
        return reached
    # As in git, the snapshots that the start can reach are excluded; a start on another timeline reaches none.
    older = {snapshot.id for snapshot in start.timeline.snapshots[start.index :]}
    return tuple(snapshot for snapshot in reached if snapshot.id not in older)


def _position(end: Position | WorkingTree, own: Timeline) -> Position | None:
    if isinstance(end, WorkingTree):
        return next(own.positions(), None)
    return end


def _find_whole(text: str, catalog: Catalog, now: datetime) -> End | None:
    """Return what a text with dots means as a whole: an intent or a name may contain them."""
    # A ref cannot contain two dots, so git is asked only for a message or a time.
    if not text.startswith(":/") and "{" not in text and not by_name(catalog.own, text):
        return None
    try:
        return find_end(text, catalog, now)
    except UsageError:
        return None


def _only_cut(text: str, cuts: tuple[RangeSplit, ...], catalog: Catalog, now: datetime) -> ResolvedRange:
    if not cuts:
        raise range_error(text)
    spans: dict[RangeSplit, ResolvedRange] = {}
    problems: list[EnvhistError] = []
    for cut in cuts:
        try:
            spans[cut] = _resolve_cut(cut, catalog, now)
        except (SnapshotNotFound, AmbiguousRevision, UsageError) as problem:
            problems.append(problem)
    if not spans:
        raise not_found_error_for_text(text, catalog, now) if catalog.is_path(text) else problems[0]
    if len({_ids(span) for span in spans.values()}) > 1:
        raise AmbiguousRevision(text, tuple(f"'{cut.before}' .. '{cut.after}'" for cut in spans))
    return next(iter(spans.values()))


def _resolve_cut(cut: RangeSplit, catalog: Catalog, now: datetime) -> ResolvedRange:
    start = resolve_end(cut.before or "@", catalog, now)
    return ResolvedRange(start, resolve_end(cut.after or "@", catalog, now))


def _ids(span: ResolvedRange) -> tuple[str, str]:
    return _id_of(span.start), _id_of(span.end)


def _id_of(end: End | None) -> str:
    return end.snapshot.id if isinstance(end, Position) else "now"
