"""`git envlog du`: show what uses the disk space of the history."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from git_envhist.cli.command import Session, command
from git_envhist.cli.formats import FormatContext, count, size
from git_envhist.cli.json_values import SCHEMA, Json
from git_envhist.cli.parser import argument, option
from git_envhist.cli.progress import shown_steps
from git_envhist.cli.terminal import pad, shorten, width
from git_envhist.cli.views.log import format_context
from git_envhist.history.titles import title
from git_envhist.model import DiskUsage, SpaceUser
from git_envhist.printable_text import escape, escape_invalid

SHOWN = 10
WIDEST = 44
NARROWEST = 20


@command("du", "git envlog du [-n <number>] [<rev>...] [-- <path>...]")
@argument("revisions", many=True)
@option(
    "-n",
    "--max-count",
    "limit",
    metavar="<number>",
    number=True,
    help="print at most <number> rows of each kind (10)",
)
def du(session: Session, revisions: tuple[str, ...], limit: int | None) -> None:
    """Show what uses disk space (classes, directories, snapshots) and what removing it would free."""
    history = session.history
    paths = tuple(history.environment_path(os.fsencode(path)) for path in session.paths or ())
    with shown_steps() as report:
        space = history.du(*revisions, paths=paths, report=report)
    if session.json:
        session.print_json(_as_json(space))
        return
    if space.together is not None:
        session.line(f"{_asked(revisions, paths)} would free {size(space.together)} of {size(space.bytes)}")
        return
    for line in _lines(space, format_context(history), SHOWN if limit is None else limit, _room(session)):
        session.line(line.rstrip())


def _asked(revisions: Sequence[str], paths: Sequence[bytes]) -> str:
    if paths:
        return "the history without " + ", ".join(escape(os.fsdecode(path)) for path in paths)
    return "dropping " + ", ".join(map(escape, revisions))


def _room(session: Session) -> int:
    """Return the width of a name next to two columns of sizes."""
    return WIDEST if session.columns is None else max(NARROWEST, min(WIDEST, session.columns - 24))


def _lines(space: DiskUsage, context: FormatContext, limit: int, columns: int) -> Iterator[str]:
    trash = f", {space.in_trash:,} dropped" if space.in_trash else ""
    yield f"{size(space.bytes)} in {count(space.packs, 'pack')}: {count(space.snapshots, 'snapshot')}{trash}"
    if space.trash_frees:
        yield f"deleting the dropped snapshots frees {size(space.trash_frees)}: git envlog gc --empty-trash"
    yield from _table("class", space.by_class, limit, columns, [row.name for row in space.by_class])
    yield from _table(
        "directory", space.by_directory, limit, columns, [row.name for row in space.by_directory]
    )
    yield from _table(
        "snapshot",
        space.by_snapshot,
        limit,
        columns,
        [_snapshot_line(row, context) for row in space.by_snapshot],
    )


def _table(
    title: str, rows: Sequence[SpaceUser], limit: int, columns: int, names: Iterable[str]
) -> Iterator[str]:
    shown = list(zip(rows, names, strict=True))[:limit]
    if not shown:
        return
    labels = [shorten(escape(name), columns) for _, name in shown]
    wide = max(len(title), *map(width, labels))
    yield ""
    yield f"{pad(title, wide)}  {'uses':>10}  {'frees':>10}"
    for (row, _), name in zip(shown, labels, strict=True):
        yield f"{pad(name, wide)}  {size(row.holds):>10}  {size(row.frees):>10}"
    if len(rows) > limit:
        yield f"and {len(rows) - limit:,} more"


def _snapshot_line(row: SpaceUser, context: FormatContext) -> str:
    one = row.snapshot
    return row.name[:7] if one is None else f"{one.id[:7]}  {context.time(one)}  {title(one)}"


def _as_json(space: DiskUsage) -> Json:
    return {
        "schema": SCHEMA,
        "bytes": space.bytes,
        "packs": space.packs,
        "moments": space.snapshots,
        "in_trash": space.in_trash,
        "trash_frees": space.trash_frees,
        "together": space.together,
        "by_class": [_row(row) for row in space.by_class],
        "by_directory": [_row(row) for row in space.by_directory],
        "by_moment": [{**_row(row), "timeline": escape_invalid(row.timeline)} for row in space.by_snapshot],
    }


def _row(row: SpaceUser) -> Json:
    return {"name": escape_invalid(row.name), "holds": row.holds, "frees": row.frees}
