"""The judgement of a path to write to, for commands that an agent runs: see `capturing/placing.py`."""

from __future__ import annotations

from git_envhist.capturing.attendance import is_unattended
from git_envhist.cli.command import Session


def refuse_place(session: Session, path: str | None) -> None:
    """Refuse to write to a path if no person is present and an agent may not write there."""
    history = session.history
    if path is None or not is_unattended(history.environ):
        return
    from git_envhist.capturing import placing  # loaded late: a person is present, mostly

    placing.refuse_place(path, history.repository, history.environ)
