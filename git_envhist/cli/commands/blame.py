"""`git envlog blame`: each line of a file with the snapshot, the agent and the intent that brought it."""

from __future__ import annotations

import os
from typing import Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.parser import argument, date_format, option
from git_envhist.cli.views.blame import BlameView, json_value, plain_lines, porcelain_lines
from git_envhist.errors import UsageError
from git_envhist.model import EnvPath


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
    lines = session.history.blame(path, at=snapshot, lines=options["lines"], reveal=options["reveal"])
    if session.json:
        session.print_json(json_value(lines, snapshot, path))
        return
    view = BlameView(session, lines, session.date_style(options["date"]))
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
