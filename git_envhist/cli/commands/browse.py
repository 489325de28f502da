"""`git envlog browse`: the timeline on a terminal, to walk through."""

from __future__ import annotations

import os

from git_envhist.cli.command import Session, command
from git_envhist.errors import EnvhistError, UsageError

PARTS = ("textual", "rich")
DUMB = "dumb"
"""A terminal that shows lines and nothing else, as an editor's."""


class TuiNotInstalled(EnvhistError):
    """What draws it is not installed."""

    code = "no-tui"


@command("browse", "git envlog browse")
def browse(session: Session) -> int:
    """Browse the timeline in this terminal: read, compare, search, restore and undo."""
    session.no_paths()
    if session.json:
        raise UsageError("a terminal is no place for JSON", hint="git envlog --json")
    if not (os.isatty(0) and os.isatty(1)) or os.environ.get("TERM") == DUMB:
        raise EnvhistError(
            "a terminal is needed to browse", hint="'git envlog' prints the same, '--html' a page"
        )
    session.history.settings  # noqa: B018 - opened for what opening it finds
    try:
        from git_envhist.tui.app import (
            browse as show,  # loaded late: it is an extra, and takes a fifth of a second
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        from git_envhist.cli.extras import how_to_add  # loaded late: only where the extra is missing

        raise TuiNotInstalled("the terminal browser is not installed here", hint=how_to_add("tui")) from error
    return show()
