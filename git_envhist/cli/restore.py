"""`git envrestore`: the program's place; see docs/recovery.md for how to get files back with git alone."""

from __future__ import annotations

import click

from git_envhist.cli.command import Session, command
from git_envhist.errors import EnvhistError


class CannotRestore(EnvhistError):
    """This version reads and keeps histories; it does not write environments yet."""

    code = "cannot-restore"


@command("envrestore", "git envrestore [<rev>] [-- <pathspec>…]")
@click.argument("revision", required=False)
def restore(session: Session, revision: str | None) -> int:
    """Say how to get files back: this version cannot restore a snapshot yet."""
    raise CannotRestore(
        "this version of git-envhist cannot restore yet",
        hint="'git show <id>:<path>' gives a file back as it was; docs/recovery.md tells the rest",
    )
