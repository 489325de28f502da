"""List likely snapshots, each with its command, for `git envrestore` without a revision."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from git_envhist.cli.command import Session
from git_envhist.cli.failure import print_error_line
from git_envhist.cli.formats import FormatContext
from git_envhist.cli.render import id_length, list_lines
from git_envhist.cli.terminal import escape
from git_envhist.history.hints import NOTHING_CAPTURED
from git_envhist.history.likely import likely_targets


def likely_lines(session: Session) -> Iterator[str]:
    """Yield the lines for at most five snapshots, the newest first."""
    history = session.history
    if history.going.broken_off:
        yield "a restore was broken off here: first git envrestore --continue, or --abort to take it back"
    moments = likely_targets(history.world.own.snapshots, "")
    if not moments:
        print_error_line(f"hint: {NOTHING_CAPTURED}")
        return
    digits = id_length([snapshot.id for snapshot in moments])
    look = FormatContext(history.now, None, digits)
    told = list_lines(moments, look, session.palette, session.columns)
    for line, snapshot in zip(told, moments, strict=True):
        yield line
        spelled = shlex.quote(snapshot.names[0]) if snapshot.names else look.short_id(snapshot)
        yield f"    git envrestore {escape(spelled)}"
    yield "nothing was changed; -n shows what one of these would do"
