"""Select the snapshots of a folded list: each line has the summary of all snapshots that it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from git_envhist.cli.selection import LogQuery, select
from git_envhist.cli.words import count
from git_envhist.errors import EnvhistError
from git_envhist.history.folding import LogLine, fold_turns
from git_envhist.history.story import describe_counts
from git_envhist.model import Snapshot
from git_envhist.values import replace

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory

AT_ONCE = 8
"""So many times the moments are read as lines are wanted, until there are enough."""


def select_folded(history: EnvHistory, wanted: LogQuery) -> list[Snapshot]:
    """Return the snapshots that were asked for; of a turn or a run the newest, with the summary of all of it."""
    lines = _lines(history, wanted)
    turns = any(line.is_turn for line in lines)
    shown = _told(history, lines) if turns else [_summed(line) for line in lines]
    return shown[::-1] if wanted.reverse else shown


def _lines(history: EnvHistory, wanted: LogQuery) -> list[LogLine]:
    most = wanted.limit if wanted.limit is None or wanted.limit >= 0 else None
    # One more tells whether the last line goes on.
    asked = None if most is None else most + 1
    while True:
        found = select(history, replace(wanted, limit=asked, reverse=False))
        lines = fold_turns((history.judge(snapshot) for snapshot in found), history.now.tzinfo)
        if most is None or asked is None:
            return lines
        if len(lines) > most or len(found) < asked:
            return lines[:most]
        asked *= AT_ONCE


def _told(history: EnvHistory, lines: Sequence[LogLine]) -> list[Snapshot]:
    from git_envhist.core import refuse_endless_trees  # loaded late: keeps envlog fast

    folded = [line for line in lines if line.is_turn]
    try:
        refuse_endless_trees(history, (line.newest for line in folded))
        stories = dict(_stories(history, [line.step for line in folded]))
    except EnvhistError:
        # What is damaged is told by others; a list tells as much as it can.
        stories = {}
    return [
        _as_one(line, stories.get(line.newest.commit)) if line.is_turn else _summed(line) for line in lines
    ]


def _summed(line: LogLine) -> Snapshot:
    """Return the newest snapshot of a line; of a run with the counts of all of it."""
    if not line.is_run:
        return line.newest
    words = f"{describe_counts(line.changed)} · {count(1 + len(line.earlier), 'snapshot')}"
    return replace(line.newest, story=words)


def _as_one(line: LogLine, story: str | None) -> Snapshot:
    parts = (story or line.newest.story, count(1 + len(line.earlier), "capture"))
    return replace(line.newest, story=" · ".join(part for part in parts if part))


def _stories(history: EnvHistory, steps: Sequence[tuple[str, str | None]]) -> Iterator[tuple[str, str]]:
    from git_envhist.capturing.factdiff import compare_facts  # loaded late: keeps envlog fast
    from git_envhist.facts import kinds  # loaded late: likewise
    from git_envhist.history.diff import count as count_changes  # loaded late: likewise
    from git_envhist.history.summary import summarize  # loaded late: likewise
    from git_envhist.store.objects import CatFile  # loaded late: likewise
    from git_envhist.store.series import changes_of  # loaded late: likewise

    git, before = history.repository.git, dict(steps)
    with CatFile(git) as reader:
        for commit, changes in changes_of(git, reader, steps):
            older = before[commit]
            facts = compare_facts(reader, older, commit, history.keys.opening) if older else ()
            yield commit, summarize(facts, count_changes(changes), kinds(), first=older is None)
