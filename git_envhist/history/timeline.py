"""Snapshots in order, newest first, joined with what was said of them; finds them by id, name, time, words, verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from git_envhist.diff.fact_keys import place_of
from git_envhist.diff.facts import compare_facts, fact_words
from git_envhist.diff.summary import changes_phrase
from git_envhist.errors import UsageError
from git_envhist.git.process import Git
from git_envhist.history.times import TimeSpan, TimeUnit, read_moment
from git_envhist.lazy import dataclass, replace
from git_envhist.model import Snapshot, Verdict, VerdictStatus
from git_envhist.model.snapshots import latest_judged

if TYPE_CHECKING:
    from git_envhist.snapshots.sealed_facts import FindFactsKey

# Find the snapshots whose summary contains a text: when did flask appear?


def filter_by_summary(
    git: Git, found: Sequence[Snapshot], text: str, find_key: FindFactsKey
) -> list[Snapshot]:
    """Those whose story contains a text: the line of the list, or any fact that differs from the snapshot before."""
    from git_envhist.git.cat_file import CatFile  # loaded late: a list reads no facts

    def tells(snapshot: Snapshot) -> bool:
        if text in changes_phrase(snapshot):
            return True
        if not snapshot.parent:
            return False
        changes = compare_facts(reader, snapshot.parent, snapshot.commit, find_key)
        return any(text in f"{one.probe} {place_of(one)} {fact_words(one)}" for one in changes)

    with CatFile(git) as reader:
        return [snapshot for snapshot in found if tells(snapshot)]


# Which snapshots a list shows: by time, words, trigger and verdict. Pure.

NO_VERDICT = "none"

Test = Callable[[Snapshot], bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for; several words of one kind are alternatives, several kinds must all hold."""

    since: str | None = None
    until: str | None = None
    grep: tuple[str, ...] = ()
    ignore_case: bool = False
    verdicts: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    summary: str | None = None
    """A text that the summary or a changed fact contains."""
    content: str | None = None
    """A text whose number of occurrences in files changed."""
    content_pattern: str | None = None
    """A regular expression that a changed line matches."""

    @property
    def restricts(self) -> bool:
        return self != Choice()

    @property
    def searches_content(self) -> bool:
        return self.content is not None or self.content_pattern is not None


def choose(snapshots: Iterable[Snapshot], choice: Choice, now: datetime) -> list[Snapshot]:
    """Those of the snapshots that were asked for, in their order."""
    tests = _tests(choice, now)
    return [snapshot for snapshot in snapshots if all(test(snapshot) for test in tests)]


def _refuse_senseless(choice: Choice) -> None:
    if choice.content is not None and choice.content_pattern is not None:
        raise UsageError("-S and -G exclude each other")
    if "" in (choice.content, choice.content_pattern):
        raise UsageError("no text to search for", hint="git envlog -S <text>, git envlog -G <regex>")


def _tests(choice: Choice, now: datetime) -> list[Test]:
    _refuse_senseless(choice)
    tests = _time_tests(choice, now)
    if choice.grep:
        tests.append(_grep_test(choice))
    if choice.verdicts:
        tests.append(lambda snapshot: _verdict_word(snapshot) in choice.verdicts)
    if choice.triggers:
        tests.append(lambda snapshot: snapshot.trigger.value in choice.triggers)
    return tests


def _time_tests(choice: Choice, now: datetime) -> list[Test]:
    tests: list[Test] = []
    if choice.since is not None:
        start = read_moment(choice.since, now).start
        tests.append(lambda snapshot: snapshot.at.astimezone(UTC) >= start)
    if choice.until is not None:
        end = read_moment(choice.until, now).end
        tests.append(lambda snapshot: snapshot.at.astimezone(UTC) <= end)
    return tests


def _grep_test(choice: Choice) -> Test:
    patterns = [_pattern(text, choice.ignore_case) for text in choice.grep]

    def test(snapshot: Snapshot) -> bool:
        said = _said(snapshot)
        return any(pattern.search(text) for pattern in patterns for text in said)

    return test


def _pattern(text: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE | re.MULTILINE if ignore_case else re.MULTILINE)
    except re.error as failure:
        hint = "it is a regular expression: a backslash before a sign makes it a letter"
        raise UsageError(f"not a pattern: '{text}' ({failure})", hint=hint) from failure


def _said(snapshot: Snapshot) -> Sequence[str]:
    return (snapshot.intent, *snapshot.names, *(remark.text for remark in snapshot.remarks))


def _verdict_word(snapshot: Snapshot) -> str:
    verdict = snapshot.verdict
    # A claim is no verdict.
    return verdict.status.value if verdict is not None and verdict.claimed_by is None else NO_VERDICT


SHORTEST_ID = 4
"""So many hex digits name a snapshot, as git has it for objects."""

PRINTED_ID = 7
NO_INTENT = "(no intent)"


class CommitResolver(Protocol):
    """Git's own revisions, for words that mean a code commit."""

    def commit_of(self, text: str) -> str | None:
        """The full hash of the commit that git resolves a text to; None where it knows none."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The snapshots of one working tree, newest first."""

    name: str
    snapshots: tuple[Snapshot, ...] = ()

    @classmethod
    def of(cls, name: str, snapshots: Iterable[Snapshot]) -> Timeline:
        """A timeline on which every name stands at one snapshot only: where it was given last."""
        return cls(name, _with_current_names(tuple(snapshots)))

    def spots(self) -> Iterator[Position]:
        return (Position(self, index) for index in range(len(self.snapshots)))

    def newest(self) -> tuple[Position, ...]:
        return (Position(self, 0),) if self.snapshots else ()


@dataclass(frozen=True, slots=True)
class Position:
    """One snapshot and where it stands."""

    timeline: Timeline
    index: int

    @property
    def snapshot(self) -> Snapshot:
        return self.timeline.snapshots[self.index]

    @property
    def count_before(self) -> int:
        """How many snapshots are older on its timeline."""
        return len(self.timeline.snapshots) - self.index - 1

    def back(self, steps: int) -> tuple[Position, ...]:
        """The snapshot so many steps before; none where the timeline begins later."""
        index = self.index + steps
        return (Position(self.timeline, index),) if index < len(self.timeline.snapshots) else ()


@dataclass(frozen=True, slots=True)
class Catalog:
    """All that a revision can speak of: this working tree's timeline, the others by name, and git."""

    own: Timeline
    others: Mapping[str, Timeline]
    """May load each timeline only when it is asked for; a fetched one stands as `origin/<timeline>`."""
    git: CommitResolver
    is_path: Callable[[str], bool] = lambda text: False
    dropped: Callable[[str], str | None] = lambda prefix: None
    """The id in the trash that begins with these digits."""
    has_remote: bool = False
    """Whether there is a place from which history can be fetched."""

    def timeline(self, name: str) -> Timeline | None:
        if name == self.own.name:
            return self.own
        return self.others.get(name)

    def timelines(self) -> Iterator[Timeline]:
        """All of them, our own first."""
        yield self.own
        for name in self.others:
            if name != self.own.name:
                yield self.others[name]


# --- finding


SHORTEST_OLD = 7
"""Digits of a hash that is long gone, as git cuts it; of so many some begin with any fewer."""
EXTERNAL_KEYS = frozenset(("external-id", "checkpoint", "checkpoint-id"))


def by_id(timeline: Timeline, prefix: str) -> tuple[Position, ...]:
    """Those whose id, or whose hash as plain git shows it now, begins with these hex digits."""
    digits = prefix.lower()
    found = tuple(
        spot
        for spot in timeline.spots()
        if spot.snapshot.id.startswith(digits) or spot.snapshot.commit.startswith(digits)
    )
    return found or tuple(spot for spot in timeline.spots() if _was_once(spot.snapshot, digits))


def _was_once(snapshot: Snapshot, digits: str) -> bool:
    """Whether plain git showed it under such a hash, after one rewrite and before the next."""
    if snapshot.id == snapshot.commit or len(digits) < SHORTEST_OLD:
        return False
    return any(one.startswith(digits) or digits.startswith(one) for one in snapshot.earlier_hashes)


def is_id(text: str) -> bool:
    return re.fullmatch(rf"[0-9a-fA-F]{{{SHORTEST_ID},64}}", text) is not None


def by_name(timeline: Timeline, name: str) -> tuple[Position, ...]:
    return _first(spot for spot in timeline.spots() if name in spot.snapshot.names)


def by_external_id(timeline: Timeline, known_as: str) -> tuple[Position, ...]:
    """The newest that another program knows by this id: said as that, or as a value of one of these keys."""
    return _first(
        spot
        for spot in timeline.spots()
        if spot.snapshot.external_id == known_as
        or any(key in EXTERNAL_KEYS and value == known_as for key, value in spot.snapshot.meta)
    )


def by_head(timeline: Timeline, commit: str) -> tuple[Position, ...]:
    """The newest that was taken when that code commit was checked out."""
    return _first(spot for spot in timeline.spots() if spot.snapshot.head == commit)


def by_verdict(timeline: Timeline, status: VerdictStatus) -> tuple[Position, ...]:
    """Those whose own latest verdict is this one, newest first."""
    return tuple(spot for spot in timeline.spots() if _own_status(spot.snapshot) is status)


def by_printed_time(timeline: Timeline, moment: TimeSpan) -> tuple[Position, ...]:
    """Those that a list prints with this very time; a day is no such time: it means its end."""
    if moment.unit not in (TimeUnit.MINUTE, TimeUnit.SECOND):
        return ()
    return tuple(spot for spot in timeline.spots() if moment.covers(spot.snapshot.at))


def by_time(timeline: Timeline, moment: TimeSpan) -> tuple[Position, ...]:
    """Those printed with this very time, else the newest taken before it."""
    printed = by_printed_time(timeline, moment)
    return printed or _first(spot for spot in timeline.spots() if moment.reaches(spot.snapshot.at))


def distinct(spots: Iterable[Position]) -> tuple[Position, ...]:
    """Each snapshot once: our own copy of it where a fetched one is known too."""
    found: dict[str, Position] = {}
    for spot in spots:
        found.setdefault(spot.snapshot.id, spot)
    return tuple(found.values())


# --- printing


def subject(intent: str) -> str:
    """The line of an intent that a list prints: its first paragraph in one line, as git's `%s` has it."""
    lines: list[str] = []
    for line in intent.split("\n"):
        if line.strip():
            lines.append(line.rstrip())
        elif lines:
            break
    return " ".join(lines) or NO_INTENT


# --- what was said of a snapshot


def own_verdict(snapshot: Snapshot) -> Verdict | None:
    """Return the latest verdict that was reached here: neither carried over from an equal tree nor claimed by others.

    A check that could not be judged leaves an earlier verdict in its place.
    """
    own = [one for one in snapshot.verdicts if one.carried_from is None and one.claimed_by is None]
    return latest_judged(own)


def _own_status(snapshot: Snapshot) -> VerdictStatus | None:
    verdict = own_verdict(snapshot)
    return verdict.status if verdict else None


def _with_current_names(snapshots: tuple[Snapshot, ...]) -> tuple[Snapshot, ...]:
    holders = _current_holders(snapshots)
    return tuple(_without_lost_names(snapshot, index, holders) for index, snapshot in enumerate(snapshots))


def _without_lost_names(snapshot: Snapshot, index: int, holders: Mapping[str, int]) -> Snapshot:
    kept = tuple(name for name in snapshot.names if holders[name] == index)
    return snapshot if kept == snapshot.names else replace(snapshot, names=kept)


def _current_holders(snapshots: tuple[Snapshot, ...]) -> dict[str, int]:
    """For each name the place of the snapshot that was last given it, or last lost it."""
    latest: dict[str, tuple[datetime, int]] = {}
    for index, snapshot in enumerate(snapshots):
        for name, at in _words_on_names(snapshot):
            if name not in latest or at > latest[name][0]:
                latest[name] = (at, index)
    return {name: index for name, (_, index) in latest.items()}


def next_name_time(timeline: Timeline, name: str, now: datetime) -> datetime:
    """The moment for giving or taking a name: the last word counts, and one second may hold several."""
    words = (word for snapshot in timeline.snapshots for word in _words_on_names(snapshot))
    last = max((at for said, at in words if said == name), default=None)
    return now if last is None or last < now else last + timedelta(microseconds=1)


def _words_on_names(snapshot: Snapshot) -> Iterator[tuple[str, datetime]]:
    recorded = set()
    for record in snapshot.records:
        name = record.fields.get("name")
        if record.kind == "name" and isinstance(name, str):
            recorded.add(name)
            yield name, record.at
    for name in snapshot.names:
        if name not in recorded:
            yield name, snapshot.at


def _first(spots: Iterator[Position]) -> tuple[Position, ...]:
    spot = next(spots, None)
    return () if spot is None else (spot,)
