"""`git envlog --graph`: which moments stand in it, and their lines beside what is told of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from git_envhist.cli.selection import LogQuery, select
from git_envhist.history.graph import GraphRow, connected, draw, ordered, parents_of, shown_parents
from git_envhist.model import Snapshot
from git_envhist.values import replace

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory


def select_graph(history: EnvHistory, wanted: LogQuery) -> tuple[list[Snapshot], list[GraphRow]]:
    """The moments that were asked for with those that forks and restores tie to them, and a row for each."""
    everything: dict[str, Snapshot] = {}
    for line in history.world.timelines():
        for snapshot in line.snapshots:
            everything.setdefault(snapshot.id, snapshot)
    parents = parents_of(everything.values())
    chosen = select(history, replace(wanted, limit=None, every=wanted.every or not wanted.revisions))
    if not wanted.every and not wanted.revisions:
        tied = connected((one.id for one in history.world.own.snapshots), parents)
        chosen = [one for one in chosen if one.id in tied]
    shown = [history.judge(one) for one in ordered(chosen, parents)]
    if wanted.limit is not None and wanted.limit >= 0:
        shown = shown[: wanted.limit]
    ids = [one.id for one in shown]
    # Where a limit cuts the list, lines go on below it, as in git.
    known = {**shown_parents([one.id for one in chosen], parents)}
    return shown, list(draw(ids, known))


def beside_rows(rows: Sequence[GraphRow], texts: Iterable[str]) -> Iterator[str]:
    """The texts with the lines of the graph at their left."""
    for row, text in zip(rows, texts, strict=True):
        first, *more = text.split("\n")
        lines = [*row.before, f"{row.mark} {first}", *(f"{row.beside} {line}" for line in more), *row.after]
        yield "\n".join(line.rstrip() for line in lines)
