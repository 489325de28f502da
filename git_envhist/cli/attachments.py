"""`git envrestore --attachments`: what was kept with a moment, written into a directory."""

from __future__ import annotations

from git_envhist.cli.command import Session
from git_envhist.cli.placing import refuse_place
from git_envhist.model import Snapshot


def write_attachments(session: Session, snapshot: Snapshot, directory: str) -> int:
    """Write them there, and say where each stands."""
    refuse_place(session, directory)
    written = session.history.going.give_back_attachments(snapshot, directory)
    if session.json:
        session.print_json({"schema": 1, "id": snapshot.id, "attachments": written})
    elif not written:
        session.line(f"nothing was attached to {snapshot.id[:7]}")
    else:
        for path in written:
            session.verbatim(path)
    return 0
