"""`git envlog blame`: each line of a file with the snapshot, the agent and the intent that brought it."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.parser import argument, date_format, option
from git_envhist.cli.views.blame import BlameView, json_value, plain_lines, porcelain_lines
from git_envhist.errors import UsageError
from git_envhist.history.blame import BlameLine, NoLines, blame, blame_versions
from git_envhist.history.why import OriginReader
from git_envhist.model import EnvPath, Snapshot, StoredAs
from git_envhist.snapshots.names import stored_path


@command("blame", "git envlog blame [<options>] [<rev>] [--] <path>", bare=True)
@argument("words", many=True)
@option("-L", "lines", metavar="<lines>", help="only these lines: <first>,<last>, as for git blame")
@option("--porcelain", is_flag=True, help="print in the format of git blame --porcelain")
@option("--reveal", is_flag=True, help="also print the lines of a sealed file")
@date_format
def blame_command(session: Session, words: tuple[str, ...], **options: Any) -> None:
    """Print each line of a file with the snapshot, the agent and the intent that brought it."""
    revision, path = _operands(session, words)
    snapshot = session.history.resolve(revision)
    with session.history.origins(snapshot) as origins:
        lines = _lines(session, origins, snapshot, path, options)
        view = BlameView(session, origins, lines, path, session.date_style(options["date"]))
        if session.json:
            session.print_json(json_value(view, snapshot))
            return
        session.page()
        for line in porcelain_lines(view) if options["porcelain"] else plain_lines(view):
            session.output.exact(line + b"\n")


def _operands(session: Session, words: tuple[str, ...]) -> tuple[str, EnvPath]:
    named = [*words, *(session.paths or ())]
    if not named or len(named) > 2:
        raise UsageError("name one file", hint="git envlog blame [<rev>] <path>")
    path = os.fsencode(named[-1])
    inside = EnvPath(path) if b"://" in path else session.history.environment_path(path)
    return (named[0] if len(named) == 2 else "@"), inside


def _lines(
    session: Session, origins: OriginReader, snapshot: Snapshot, path: EnvPath, options: dict[str, Any]
) -> list[BlameLine]:
    history = session.history
    with closing(history.reader(history.with_contents(snapshot, path))) as reader:
        entry = reader.entry(path)
        kind = StoredAs.PLAIN if entry is None else entry.stored
        if kind is StoredAs.PLAIN:
            # Raises an error that says what there is instead of a file.
            next(iter(reader.read(path)), b"")
    if kind is StoredAs.PLAIN:
        return blame(history.repository.git, snapshot.commit, stored_path(path), options["lines"])
    if kind is not StoredAs.SEALED:
        raise NoLines("the file is too large to compare its lines", hint="git envlog why <path>")
    if not options["reveal"]:
        raise NoLines(
            "the file is sealed", hint="print its lines with --reveal, or ask: git envlog why --var <name>"
        )
    if options["lines"] is not None:
        raise UsageError("-L and a sealed file exclude each other")
    versions = [(one.commit, history.read_file(one, place)) for one, place in origins.contents_of(path)]
    return blame_versions(stored_path(path), versions)
