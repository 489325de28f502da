"""`git envlog name`: names a moment, so that it can be typed where a revision stands."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.naming import refuse_name
from git_envhist.cli.options import argument, option
from git_envhist.cli.terminal import escape, pad, width
from git_envhist.cli.titles import format_context
from git_envhist.errors import UsageError
from git_envhist.history.timeline import by_name


@command("name", "git envlog name [<name> [<rev>] | -d <name>]", writes=True)
@argument("name")
@argument("revision")
@option("-d", "--delete", "removed", metavar="<name>", help="take a name away; the snapshot stays")
def name(session: Session, name: str | None, revision: str | None, removed: str | None) -> None:
    """Gives a snapshot (the newest by default) a name, or takes a name away; alone it lists the names."""
    session.no_paths()
    if removed is not None:
        if name is not None:
            raise UsageError("-d takes one name and nothing else", hint="git envlog name -d <name>")
        _take_away(session, removed)
        return
    if name is None:
        _list(session)
        return
    refuse_name(name)
    history = session.history
    target = history.resolve("@" if revision is None else revision)
    line = history.world.timeline(target.timeline) or history.world.own
    before = next((spot.snapshot.id for spot in by_name(line, name) if spot.snapshot.id != target.id), None)
    snapshot = history.name(name, target)
    session.done("the name is given")
    if session.json:
        told = {"schema": 1, "name": name, "id": snapshot.id, "removed": False, "moved_from": before}
        session.print_json(told)
    else:
        moved = f" (moved from {before[:7]})" if before else ""
        words = format_context(history).words(snapshot)
        session.line(f"{snapshot.id[:7]} is named '{escape(name)}'{moved}: {words}")


def _list(session: Session) -> None:
    named = [(name, one) for one in session.history.world.own.snapshots for name in sorted(one.names)]
    if session.json:
        session.print_json({"schema": 1, "names": [{"name": name, "id": one.id} for name, one in named]})
        return
    look = format_context(session.history)
    widest = max((width(escape(name)) for name, _ in named), default=0)
    for name, one in named:
        told = f"{one.id[:7]}  {look.time(one)}  {look.words(one)}"
        session.line(f"{pad(escape(name), widest)}  {told}")
    if not named:
        session.line("no moment bears a name; the first: git envlog name <name>")


def _take_away(session: Session, name: str) -> None:
    snapshot = session.history.remove_name(name)
    session.done("the name is taken away")
    if session.json:
        session.print_json(
            {"schema": 1, "name": name, "id": snapshot.id, "removed": True, "moved_from": None}
        )
    else:
        session.line(f"{snapshot.id[:7]} is no longer named '{escape(name)}'")
