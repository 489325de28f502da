"""Timelines: snapshots in order, found by id, name, time, intent or check, and selected for a list (pure).

`Catalog` is everything that a revision can refer to. `Choice` and `choose` select the snapshots of a list by time,
words, trigger and check. A name belongs to the snapshot that got it last; the latest check of our own counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from git_envhist.diff.facts import compare_facts, fact_words
from git_envhist.diff.split_fact_key import place_of
from git_envhist.diff.summary import changes_phrase
from git_envhist.errors import UsageError
from git_envhist.git.process import Git
from git_envhist.history.times import TimeSpan, TimeUnit, read_time_span
from git_envhist.lazy import dataclass, replace
from git_envhist.model import Snapshot, Verdict, VerdictStatus
from git_envhist.model.snapshots import latest_judged

if TYPE_CHECKING:
    from git_envhist.snapshots.sealed_facts import FindFactsKey

if TYPE_CHECKING:
    pass


# Select by time, words, trigger and check.

NO_VERDICT = "none"
SUBAGENT = "agent-id"
"""The key of the value that names the subagent which caused a snapshot."""
RELOCATED = "relocated"
"""The key of the value of a fork's snapshot with rewritten paths: their number."""
FIRST_TOOL = "agent-first"
"""The key of the value of a snapshot before the first tool of a turn: it has what others changed."""

Test = Callable[[Snapshot], bool]


SHORTEST_ID = 4
"""The least number of digits of an id, as for git's objects."""

PRINTED_ID = 7
NO_INTENT = "(no intent)"


class CommitResolver(Protocol):
    """Resolve git's revisions to code commits."""

    def commit_of(self, text: str) -> str | None:
        """Return the full hash of the commit that git resolves a text to; None if there is none."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The snapshots of one working tree, newest first."""

    name: str
    snapshots: tuple[Snapshot, ...] = ()

    @classmethod
    def of(cls, name: str, snapshots: Iterable[Snapshot]) -> Timeline:
        """Return a timeline on which each name belongs to one snapshot: the one that got it last."""
        return cls(name, _with_current_names(tuple(snapshots)))

    def positions(self) -> Iterator[Position]:
        return (Position(self, index) for index in range(len(self.snapshots)))

    def newest(self) -> tuple[Position, ...]:
        return (Position(self, 0),) if self.snapshots else ()


@dataclass(frozen=True, slots=True)
class Position:
    """A snapshot, and its place on a timeline."""

    timeline: Timeline
    index: int

    @property
    def snapshot(self) -> Snapshot:
        return self.timeline.snapshots[self.index]

    @property
    def count_before(self) -> int:
        """The number of older snapshots on its timeline."""
        return len(self.timeline.snapshots) - self.index - 1

    def back(self, steps: int) -> tuple[Position, ...]:
        """Return the snapshot a number of steps before; none if the timeline is shorter."""
        index = self.index + steps
        return (Position(self.timeline, index),) if index < len(self.timeline.snapshots) else ()


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything that a revision can refer to: this working tree's timeline, the others by name, and git."""

    own: Timeline
    others: Mapping[str, Timeline]
    """Loaded when they are asked for; a fetched one is named `origin/<timeline>`."""
    git: CommitResolver
    is_path: Callable[[str], bool] = lambda text: False
    dropped: Callable[[str], str | None] = lambda prefix: None
    """Returns the id in the trash that begins with some digits."""
    has_remote: bool = False
    """True if a remote is configured."""

    def timeline(self, name: str) -> Timeline | None:
        if name == self.own.name:
            return self.own
        return self.others.get(name)

    def timelines(self) -> Iterator[Timeline]:
        """Yield all timelines, our own first."""
        yield self.own
        for name in self.others:
            if name != self.own.name:
                yield self.others[name]


# Find snapshots of a timeline.

SHORTEST_OLD = 7
"""The least number of digits of a commit hash from before a rewrite."""
EXTERNAL_KEYS = frozenset(("external-id", "checkpoint", "checkpoint-id"))


def by_id(timeline: Timeline, prefix: str) -> tuple[Position, ...]:
    """Return the snapshots by the first digits of id or commit hash; else by hashes from before a rewrite."""
    digits = prefix.lower()
    found = tuple(
        position
        for position in timeline.positions()
        if position.snapshot.id.startswith(digits) or position.snapshot.commit.startswith(digits)
    )
    return found or tuple(
        position for position in timeline.positions() if _was_once(position.snapshot, digits)
    )


def _was_once(snapshot: Snapshot, digits: str) -> bool:
    """Return whether the commit of a snapshot had such a hash between two rewrites."""
    if snapshot.id == snapshot.commit or len(digits) < SHORTEST_OLD:
        return False
    return any(one.startswith(digits) or digits.startswith(one) for one in snapshot.earlier_hashes)


def is_id(text: str) -> bool:
    return re.fullmatch(rf"[0-9a-fA-F]{{{SHORTEST_ID},64}}", text) is not None


def by_name(timeline: Timeline, name: str) -> tuple[Position, ...]:
    return _first(position for position in timeline.positions() if name in position.snapshot.names)


def by_external_id(timeline: Timeline, known_as: str) -> tuple[Position, ...]:
    """Return the newest snapshot with an external id, or with this value under a key for external ids."""
    return _first(
        position
        for position in timeline.positions()
        if position.snapshot.external_id == known_as
        or any(key in EXTERNAL_KEYS and value == known_as for key, value in position.snapshot.meta)
    )


def by_head(timeline: Timeline, commit: str) -> tuple[Position, ...]:
    """Return the newest snapshot taken while a code commit was checked out."""
    return _first(position for position in timeline.positions() if position.snapshot.head == commit)


def by_verdict(timeline: Timeline, status: VerdictStatus) -> tuple[Position, ...]:
    """Return the snapshots by the result of their latest own check, newest first."""
    return tuple(position for position in timeline.positions() if _own_status(position.snapshot) is status)


def by_printed_time(timeline: Timeline, time: TimeSpan) -> tuple[Position, ...]:
    """Return the snapshots that a list prints with this time; none for a day, which means its end."""
    if time.unit not in (TimeUnit.MINUTE, TimeUnit.SECOND):
        return ()
    return tuple(position for position in timeline.positions() if time.covers(position.snapshot.at))


def by_time(timeline: Timeline, time: TimeSpan) -> tuple[Position, ...]:
    """Return the snapshots printed with this time, else the newest one taken before it."""
    printed = by_printed_time(timeline, time)
    return printed or _first(
        position for position in timeline.positions() if time.reaches(position.snapshot.at)
    )


def distinct(positions: Iterable[Position]) -> tuple[Position, ...]:
    """Return each snapshot once: our own copy if there is a fetched one too."""
    found: dict[str, Position] = {}
    for position in positions:
        found.setdefault(position.snapshot.id, position)
    return tuple(found.values())


def subject(intent: str) -> str:
    """Return the first paragraph of an intent in one line, as git's `%s` prints it."""
    lines: list[str] = []
    for line in intent.split("\n"):
        if line.strip():
            lines.append(line.rstrip())
        elif lines:
            break
    return " ".join(lines) or NO_INTENT


# Notes of a snapshot: checks and names.


def own_verdict(snapshot: Snapshot) -> Verdict | None:
    """Return the result of the latest check of our own, neither copied from an equal tree nor claimed by others.

    A check without a result does not replace an earlier result.
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
    """Return for each name the place of the snapshot that got or lost it last."""
    latest: dict[str, tuple[datetime, int]] = {}
    for index, snapshot in enumerate(snapshots):
        for name, at in _name_records(snapshot):
            if name not in latest or at > latest[name][0]:
                latest[name] = (at, index)
    return {name: index for name, (_, index) in latest.items()}


def next_name_time(timeline: Timeline, name: str, now: datetime) -> datetime:
    """Return the time of a new record about a name: later than all earlier ones, also within one second."""
    records = (record for snapshot in timeline.snapshots for record in _name_records(snapshot))
    last = max((at for recorded, at in records if recorded == name), default=None)
    return now if last is None or last < now else last + timedelta(microseconds=1)


def _name_records(snapshot: Snapshot) -> Iterator[tuple[str, datetime]]:
    recorded = set()
    for record in snapshot.records:
        name = record.fields.get("name")
        if record.kind == "name" and isinstance(name, str):
            recorded.add(name)
            yield name, record.at
    for name in snapshot.names:
        if name not in recorded:
            yield name, snapshot.at


def _first(positions: Iterator[Position]) -> tuple[Position, ...]:
    position = next(positions, None)
    return () if position is None else (position,)


# Select by summary: when did flask appear?


def filter_by_summary(
    git: Git, found: Sequence[Snapshot], text: str, find_key: FindFactsKey
) -> list[Snapshot]:
    """Return the snapshots with a text in the summary or in a fact that changed since the snapshot before."""
    from git_envhist.git.cat_file import CatFile  # loaded late: most lists read no facts

    def contains(snapshot: Snapshot) -> bool:
        if text in changes_phrase(snapshot):
            return True
        if not snapshot.parent:
            return False
        changes = compare_facts(reader, snapshot.parent, snapshot.commit, find_key)
        return any(text in f"{one.probe} {place_of(one)} {fact_words(one)}" for one in changes)

    with CatFile(git) as reader:
        return [snapshot for snapshot in found if contains(snapshot)]


@dataclass(frozen=True, slots=True)
class SnapshotFilter:
    """The criteria of a list: all must hold; of several words for one criterion, one."""

    since: str | None = None
    until: str | None = None
    grep: tuple[str, ...] = ()
    ignore_case: bool = False
    verdicts: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    summary: str | None = None
    """A text that the summary or a changed fact contains."""
    content: str | None = None
    """A text; the number of its occurrences in files changed."""
    content_pattern: str | None = None
    """A regular expression that a changed line matches."""
    sessions: tuple[str, ...] = ()
    """Ids of an agent's sessions, or the beginnings of such ids."""
    agent_ids: tuple[str, ...] = ()
    """Ids of subagents, or the beginnings of such ids."""
    reveal: bool = False
    """Search the contents of sealed files too."""

    @property
    def restricts(self) -> bool:
        return self != SnapshotFilter()

    @property
    def searches_content(self) -> bool:
        return self.content is not None or self.content_pattern is not None


def filter_snapshots(snapshots: Iterable[Snapshot], choice: SnapshotFilter, now: datetime) -> list[Snapshot]:
    """Return the snapshots that meet all criteria, in their order."""
    tests = _tests(choice, now)
    return [snapshot for snapshot in snapshots if all(test(snapshot) for test in tests)]


def _refuse_invalid(choice: SnapshotFilter) -> None:
    if choice.content is not None and choice.content_pattern is not None:
        raise UsageError("-S and -G exclude each other")
    if choice.reveal and not choice.searches_content:
        raise UsageError("--reveal needs -S or -G", hint="git envlog -S <text> --reveal")
    if "" in (*choice.sessions, *choice.agent_ids):
        raise UsageError("no id given", hint="git envlog --session <id>, git envlog --agent-id <id>")
    if "" in (choice.content, choice.content_pattern):
        raise UsageError("no text to search for", hint="git envlog -S <text>, git envlog -G <regex>")


def _tests(choice: SnapshotFilter, now: datetime) -> list[Test]:
    _refuse_invalid(choice)
    tests = _time_tests(choice, now)
    if choice.grep:
        tests.append(_grep_test(choice))
    if choice.verdicts:
        tests.append(lambda snapshot: _verdict_word(snapshot) in choice.verdicts)
    if choice.triggers:
        tests.append(lambda snapshot: snapshot.trigger.value in choice.triggers)
    if choice.sessions:
        tests.append(lambda snapshot: (snapshot.actor.session or "").startswith(choice.sessions))
    if choice.agent_ids:
        tests.append(lambda snapshot: dict(snapshot.meta).get(SUBAGENT, "").startswith(choice.agent_ids))
    return tests


def _time_tests(choice: SnapshotFilter, now: datetime) -> list[Test]:
    tests: list[Test] = []
    if choice.since is not None:
        start = read_time_span(choice.since, now).start
        tests.append(lambda snapshot: snapshot.at.astimezone(UTC) >= start)
    if choice.until is not None:
        end = read_time_span(choice.until, now).end
        tests.append(lambda snapshot: snapshot.at.astimezone(UTC) <= end)
    return tests


def _grep_test(choice: SnapshotFilter) -> Test:
    patterns = [_pattern(text, choice.ignore_case) for text in choice.grep]

    def test(snapshot: Snapshot) -> bool:
        texts = _texts(snapshot)
        return any(pattern.search(text) for pattern in patterns for text in texts)

    return test


def _pattern(text: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE | re.MULTILINE if ignore_case else re.MULTILINE)
    except re.error as failure:
        hint = "it is a regular expression: put a backslash before a character to match it literally"
        raise UsageError(f"not a pattern: '{text}' ({failure})", hint=hint) from failure


def _texts(snapshot: Snapshot) -> Sequence[str]:
    return (snapshot.intent, *snapshot.names, *(remark.text for remark in snapshot.remarks))


def _verdict_word(snapshot: Snapshot) -> str:
    verdict = snapshot.verdict
    # A result that none of your keys signed counts as none.
    return verdict.status.value if verdict is not None and verdict.claimed_by is None else NO_VERDICT
