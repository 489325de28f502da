"""`git envlog push`: send timelines to a remote; before the first push, list what would be sent."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import RUN_AGAIN, print_error_line, stoppable, warn
from git_envhist.cli.formats import count, size
from git_envhist.cli.json_values import SCHEMA, Json, path_fields
from git_envhist.cli.parser import allow_tokens, argument, dry_run, option
from git_envhist.cli.progress import shown_steps
from git_envhist.model import EnvPath
from git_envhist.model.sharing import OutgoingScan, PushOutcome, PushResult, TimelinePush
from git_envhist.printable_text import escape, escape_invalid
from git_envhist.remote.push import FirstPush, NotAgreed

WORDS = {
    PushOutcome.NEW: "new",
    PushOutcome.UPDATED: "updated",
    PushOutcome.REWRITTEN: "rewritten",
    PushOutcome.SAME: "up to date",
    PushOutcome.DELETED: "deleted",
    PushOutcome.DIVERGED: "diverged",
}


@command("push", "git envlog push [<options>] [<remote>] [<timeline>...]", writes=True)
@argument("remote")
@argument("timelines", many=True)
@dry_run("list what would be sent; send nothing")
@option(
    "--delete", metavar="<timeline>", multiple=True, help="delete this timeline on the remote; repeatable"
)
@option(
    "--yes",
    "agreed",
    is_flag=True,
    help="agree to send what the push lists",
)
@allow_tokens(" or is large")
def push_command(
    session: Session,
    remote: str | None,
    timelines: tuple[str, ...],
    dry_run: bool,
    delete: tuple[str, ...],
    agreed: bool,
    allow: tuple[str, ...],
) -> None:
    """Send this working tree's timeline, or the named ones ('laptop/*' is a pattern), with notes and names."""
    session.no_paths()
    history = session.history
    try:
        with (
            stoppable("each timeline on the remote is either complete or unchanged", RUN_AGAIN),
            shown_steps() as history.step,
        ):
            done = history.push(remote, *timelines, delete=delete, allow=allow, yes=agreed, dry_run=dry_run)
    except (FirstPush, NotAgreed) as first:
        if not session.json:
            for line in first_push_lines(first.planned):
                print_error_line(line)
        raise
    if not dry_run:
        session.done("the timelines are sent")
    for warning in done.warnings:
        warn(warning)
    if session.json:
        session.print_json(_as_json(done, dry_run))
        return
    for problem in done.problems:
        warn(f"would be refused: {problem}")
    for line in _lines(done, dry_run):
        session.line(line)


def first_push_lines(planned: PushResult) -> Iterator[str]:
    """Yield what would be sent, by class and size, with the names of databases."""
    yield f"would send to '{escape(planned.remote.name)}' ({escape(planned.remote.shown)}):"
    yield from outgoing_lines(planned.scan)


LABELS = {"records": "metadata"}
"""Names of classes that are printed otherwise than in the JSON."""


def outgoing_lines(context: OutgoingScan) -> Iterator[str]:
    """Yield a line for each class of data, and the names of databases, dumps and secret-looking files."""
    for share in context.shares:
        how = "sealed: only the names are readable" if share.name == "sealed" else "not encrypted"
        yield f"  {LABELS.get(share.name, share.name):<12} {size(share.bytes):>10}  {count(share.files, 'file')}, {how}"
    if context.databases:
        yield "  databases, not encrypted:"
    for path, length in context.databases:
        yield f"    {_shown(path)}  {size(length)}"
    if context.dumps:
        yield "  database dumps, not encrypted:"
    for path, length in context.dumps:
        yield f"    {_shown(path)}  {size(length)}"
    if context.names:
        yield "  files with a secret-looking name, not encrypted:"
    for path in context.names:
        yield f"    {_shown(path)}"


def _lines(done: PushResult, dry_run: bool) -> Iterator[str]:
    if dry_run:
        yield from first_push_lines(done)
        parts = f", in {count(done.parts, 'part')}" if done.parts else ""
        yield f"{count(done.objects, 'object')}, about {size(done.bytes)} to send{parts}"
    else:
        yield f"to '{escape(done.remote.name)}' ({escape(done.remote.shown)}), {count(done.objects, 'object')}:"
    if done.new and not done.first:
        yield "  new, not encrypted:"
    for kind in done.new if not done.first else ():
        yield f"    {escape(kind)}"
    for one in done.timelines:
        yield f"  {escape(one.timeline)}  {WORDS[one.outcome]}{_tip(one)}"


def _tip(one: TimelinePush) -> str:
    new = next((move.new for move in one.moves if move.new and move.ref.startswith("refs/envhist/")), None)
    return f"  {new[:7]}" if new else ""


def _shown(path: bytes) -> str:
    return escape(path.decode("utf-8", "surrogateescape"))


def _as_json(done: PushResult, dry_run: bool) -> Json:
    return {
        "schema": SCHEMA,
        "remote": escape_invalid(done.remote.name),
        "url": escape_invalid(done.remote.shown),
        "dry_run": dry_run,
        "first": done.first,
        "timelines": [{"timeline": one.timeline, "status": one.outcome.value} for one in done.timelines],
        "objects": done.objects,
        "bytes": done.bytes,
        "parts": done.parts,
        **outgoing_json(done.scan),
        "tokens": [{**path_fields(EnvPath(one.path)), "kind": one.kind} for one in done.scan.tokens],
        "new": [escape_invalid(kind) for kind in done.new],
        "problems": [escape_invalid(problem) for problem in done.problems],
    }


def outgoing_json(context: OutgoingScan) -> Json:
    """Return the same as data."""
    return {
        "leaving": [
            {"class": share.name, "files": share.files, "bytes": share.bytes} for share in context.shares
        ],
        "databases": [{**path_fields(EnvPath(path)), "bytes": length} for path, length in context.databases],
        "dumps": [{**path_fields(EnvPath(path)), "bytes": length} for path, length in context.dumps],
        "names": [path_fields(EnvPath(path)) for path in context.names],
    }
