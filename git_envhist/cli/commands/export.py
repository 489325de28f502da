"""`git envlog export` and `import`: timelines in one archive file, for use without a remote."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.cli.command import Session, command
from git_envhist.cli.commands.push import outgoing_json, outgoing_lines
from git_envhist.cli.errors import print_error_line, stoppable, warn
from git_envhist.cli.formats import count, size
from git_envhist.cli.json_values import SCHEMA
from git_envhist.cli.parser import allow_tokens, argument, force, option
from git_envhist.cli.refused_arguments import refuse_place
from git_envhist.errors import UsageError
from git_envhist.model.sharing import ExportResult, FetchOutcome, ImportResult
from git_envhist.printable_text import escape, escape_invalid

USAGE_EXPORT = "git envlog export [<options>] <file> [<rev>...]"
USAGE_IMPORT = "git envlog import [--as <name>] <file>"


@command("export", USAGE_EXPORT, writes=True, bare=True)
@argument("file")
@argument("revisions", many=True)
@force("overwrite an existing file")
@allow_tokens()
def export_command(
    session: Session, file: str | None, revisions: tuple[str, ...], force: bool, allow: tuple[str, ...]
) -> None:
    """Write snapshots (default: the timeline), with notes and names, into one file: <name>.envhist.tar.zst."""
    session.no_paths()
    if file is None:
        raise UsageError("no file given", hint=USAGE_EXPORT)
    refuse_place(session, file)
    with stoppable("the file is complete, or was not written", "run the command again"):
        done = session.history.export(file, *revisions, force=force, allow=allow)
    session.done("the file is written")
    for warning in session.history.warnings:
        warn(warning)
    if session.json:
        session.print_json(_exported_json(done))
        return
    print_error_line("the file contains:")
    for line in outgoing_lines(done.scan):
        print_error_line(line)
    for line in _exported_lines(done):
        session.line(line)


@command("import", USAGE_IMPORT, writes=True)
@argument("file")
@option(
    "--as",
    "name",
    metavar="<name>",
    help="prefix for the imported timelines (the file's name)",
)
def import_command(session: Session, file: str | None, name: str | None) -> None:
    """Read the timelines of an archive. Name them '<name>/<timeline>' in commands, as after a fetch."""
    session.no_paths()
    if file is None:
        raise UsageError("no file given", hint=USAGE_IMPORT)
    with stoppable("each timeline is either imported completely or unchanged", "run the command again"):
        done = session.history.import_(file, name=name)
    session.done("the timelines are imported")
    for warning in session.history.warnings:
        warn(warning)
    if session.json:
        session.print_json(_imported_json(done))
        return
    session.line(f"from '{escape(done.file)}':")
    for timeline, arrival, snapshots in done.timelines:
        how = "up to date" if arrival is FetchOutcome.SAME else arrival.value
        session.line(f"  {escape(timeline)}  {how}  {count(snapshots, 'snapshot')}")


def _exported_lines(done: ExportResult) -> Iterator[str]:
    yield f"wrote '{escape(done.file)}': {size(done.bytes)}, {count(done.objects, 'object')}"
    for timeline, snapshots in done.timelines:
        yield f"  {escape(timeline)}  {count(len(snapshots), 'snapshot')}"


def _exported_json(done: ExportResult) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "file": escape_invalid(done.file),
        "bytes": done.bytes,
        "objects": done.objects,
        "timelines": [
            {"timeline": timeline, "snapshots": [snapshot.id for snapshot in snapshots]}
            for timeline, snapshots in done.timelines
        ],
        **outgoing_json(done.scan),
    }


def _imported_json(done: ImportResult) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "file": escape_invalid(done.file),
        "name": done.name,
        "timelines": [
            {"timeline": timeline, "status": arrival.value, "snapshots": snapshots}
            for timeline, arrival, snapshots in done.timelines
        ],
    }
