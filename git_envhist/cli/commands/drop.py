"""`git envlog drop` and `undrop`: remove snapshots, and restore them within 30 days."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn
from git_envhist.cli.formats import FormatContext
from git_envhist.cli.json_values import SCHEMA, Json
from git_envhist.cli.parser import argument, dry_run, option
from git_envhist.cli.views.log import format_context, id_length
from git_envhist.errors import UsageError
from git_envhist.history.timeline import subject
from git_envhist.printable_text import escape, escape_invalid

if TYPE_CHECKING:
    from git_envhist.model import Snapshot
    from git_envhist.model.retention import DropResult, TrashedSnapshot


@command("drop", "git envlog drop [<options>] <rev>...", writes=True)
@argument("revisions", many=True)
@dry_run()
def drop(session: Session, revisions: tuple[str, ...], dry_run: bool) -> None:
    """Remove snapshots, or all of a range. Within 30 days 'git envlog undrop' restores them."""
    session.no_paths()
    if not revisions:
        raise UsageError(
            "no snapshot given", hint="git envlog drop <rev>...; to drop by a policy: git envlog prune"
        )
    history = session.history
    dropped = history.drop(*revisions, dry_run=dry_run)
    if not dry_run:
        session.done("the snapshots are dropped")
    for warning in dropped.warnings:
        warn(warning)
    if session.json:
        session.print_json(_as_json(dropped))
        return
    for line in _lines(dropped, format_context(history)):
        session.line(line)


@command("undrop", "git envlog undrop [<options>] [<rev>...]", writes=True)
@argument("revisions", many=True)
@option("--all", "every", is_flag=True, help="restore every dropped snapshot")
@dry_run()
def undrop(session: Session, revisions: tuple[str, ...], every: bool, dry_run: bool) -> None:
    """Restore dropped snapshots to their place in the timeline. Without <rev>, list the dropped snapshots."""
    session.no_paths()
    history = session.history
    dropping = history.dropper
    if not revisions and not every:
        _list(session, dropping.trash())
        return
    if revisions and every:
        raise UsageError("--all takes no revisions")
    found = dropping.trash() if every else [dropping.find(one) for one in revisions]
    back = dropping.undrop(found) if not dry_run else None
    if not dry_run:
        session.done("the snapshots are restored")
    for warning in back.warnings if back is not None else ():
        warn(warning)
    if session.json:
        value = {"schema": SCHEMA, "dry_run": dry_run, "trash": [_trash_json(one) for one in found]}
        session.print_json(value)
        return
    context = format_context(history)
    word = "would restore" if dry_run else "restored"
    for one in found:
        session.line(f"{word} {_label(one.snapshot, context)}")
    if not found:
        session.line("no snapshots are dropped")


def _list(session: Session, found: list[TrashedSnapshot]) -> None:
    if session.json:
        value = {"schema": SCHEMA, "dry_run": True, "trash": [_trash_json(one) for one in found]}
        session.print_json(value)
        return
    length = id_length([one.snapshot.id for one in found])
    context = format_context(session.history)
    for one in found:
        names = f" ({', '.join(map(escape, one.snapshot.names))})" if one.snapshot.names else ""
        session.line(
            f"{one.snapshot.id[:length]}  {context.time(one.snapshot)}  {context.words(one.snapshot)}{names}"
            f"  dropped {one.since.isoformat()}, kept until {one.until.isoformat()}"
        )
    if not found:
        session.line("no snapshots are dropped")
    else:
        session.line("restore one: git envlog undrop <id>")


def _lines(dropped: DropResult, context: FormatContext) -> Iterator[str]:
    word = "would drop" if dropped.dry_run else "dropped"
    for one in dropped.snapshots:
        yield f"{word} {_label(one, context)}"
    if not dropped.dry_run and dropped.snapshots:
        what = " ".join(one.id[:7] for one in dropped.snapshots[:3])
        again = what if len(dropped.snapshots) <= 3 else "<id>"
        yield f"can be restored until {dropped.until.isoformat()}: git envlog undrop {again}"
    named = next((name for one in dropped.snapshots for name in one.names), None)
    if not dropped.snapshots:
        yield "nothing to drop: the range contains no snapshots"
    if named is not None and dropped.dry_run:
        yield f"the name is dropped too; to remove only the name: git envlog name -d {escape(shlex.quote(named))}"


def _label(snapshot: Snapshot, context: FormatContext) -> str:
    names = f" ({', '.join(map(escape, snapshot.names))})" if snapshot.names else ""
    return f"{snapshot.id[:7]}  {context.time(snapshot)}  {context.words(snapshot)}{names}"


def _as_json(dropped: DropResult) -> Json:
    return {
        "schema": SCHEMA,
        "dry_run": dropped.dry_run,
        "dropped": [_brief(one.id, one.intent) for one in dropped.snapshots],
        "until": dropped.until.isoformat(),
        "warnings": [escape_invalid(warning) for warning in dropped.warnings],
    }


def _brief(name: str, intent: str) -> Json:
    return {"id": name, "intent": escape_invalid(subject(intent))}


def _trash_json(one: TrashedSnapshot) -> Json:
    return {
        **_brief(one.snapshot.id, one.snapshot.intent),
        "timeline": one.snapshot.timeline,
        "since": one.since.isoformat(),
        "until": one.until.isoformat(),
    }
