"""`git envrestore`: the program's place; see docs/recovery.md for how to get files back with git alone."""

from __future__ import annotations

from shlex import quote

from git_envhist.cli.command import Session, command
from git_envhist.cli.options import argument
from git_envhist.errors import EnvhistError


class CannotRestore(EnvhistError):
    """This version reads and keeps histories; it does not write environments yet."""

    code = "cannot-restore"


@command("envrestore", "git envrestore [<rev>] [-- <pathspec>…]")
@argument("revision")
def restore(session: Session, revision: str | None) -> int:
    """Say how to get files back: this version cannot restore a snapshot yet."""
    raise CannotRestore(
        "this version of git-envhist cannot restore yet",
        hint=f"a file as it was: {_by_hand(revision, session.paths)}; docs/recovery.md tells the rest",
    )


def _by_hand(revision: str | None, paths: tuple[str, ...] | None) -> str:
    shown = f"git envlog show {quote(revision or '@')} -- "
    return f"{shown}{quote(paths[0])} > {quote(paths[0])}" if paths else f"{shown}<path>"
