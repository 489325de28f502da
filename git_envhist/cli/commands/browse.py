"""`git envlog browse`: the terminal browser of the timeline."""

from __future__ import annotations

import os

from git_envhist.cli.command import Session, command
from git_envhist.errors import EnvhistError, UsageError

PARTS = ("textual", "rich")
DUMB = "dumb"
"""The TERM of a terminal without cursor movement, e.g. in an editor."""


class TuiNotInstalled(EnvhistError):
    """The optional package textual is not installed."""

    code = "no-tui"


@command("browse", "git envlog browse")
def browse(session: Session) -> int:
    """Browse the timeline in this terminal: read, compare, search, restore and undo."""
    session.no_paths()
    if session.json:
        raise UsageError("browse cannot print JSON", hint="git envlog --json")
    if not (os.isatty(0) and os.isatty(1)) or os.environ.get("TERM") == DUMB:
        raise EnvhistError(
            "browse needs a terminal", hint="use 'git envlog', or 'git envlog --html <file>' for a web page"
        )
    session.history.settings  # noqa: B018 - opened for what opening it finds
    try:
        from git_envhist.tui.app import (
            browse as show,  # loaded late: it is an extra, and takes a fifth of a second
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        from git_envhist.cli.install_extras import (
            extra_install_command,  # loaded late: only where the extra is missing
        )

        raise TuiNotInstalled(
            "the terminal browser is not installed", hint=extra_install_command("tui")
        ) from error
    return show()
