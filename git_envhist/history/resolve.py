"""Resolves revisions: collects every snapshot that a text can mean, and takes it only where that is one.

The law: for every line of a timeline its id, its printed time, its name and `:/its intent` each lead to that line, or
list the candidates. So a word is looked up as everything it can be, and nothing shadows anything silently. Only
what is no more than near (a time between two snapshots, a name on another timeline) yields to what is exact.
"""

from __future__ import annotations

from datetime import datetime

from git_envhist.errors import AmbiguousRevision, SnapshotNotFound, UsageError
from git_envhist.history.hints import not_found_error
from git_envhist.history.intents import by_intent, label_candidates
from git_envhist.history.revisions import (
    RESERVED,
    Ancestor,
    AtTime,
    BareWord,
    ByIntent,
    ByVerdict,
    Newest,
    Now,
    Revision,
    readings,
    shorten,
)
from git_envhist.history.timeline import (
    Catalog,
    Position,
    by_external_id,
    by_head,
    by_id,
    by_name,
    by_printed_time,
    by_time,
    by_verdict,
    distinct,
    is_id,
)
from git_envhist.history.times import parse_moment
from git_envhist.model import Snapshot

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
