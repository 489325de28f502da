"""Paths that stand behind a revision without `--`, as git takes them where nothing else can be meant."""

from __future__ import annotations

import os
from collections.abc import Sequence

from git_envhist.cli.command import Session
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.model import Snapshot
from git_envhist.store.names import stored_path


def take_paths(session: Session, words: Sequence[str], snapshot: Snapshot, usage: str) -> None:
    """Have words behind a revision be the pathspecs: each has to be there now, or in the snapshot."""
    for word in words:
        if session.paths is not None or not (os.path.lexists(word) or _holds(session, snapshot, word)):
            raise UsageError(
                f"one word too many: '{word}'", hint=f"paths stand behind '--': {usage} -- <path>"
            )
    session.paths = tuple(words)


def _holds(session: Session, snapshot: Snapshot, word: str) -> bool:
    try:
        path = session.history.environment_path(os.fsencode(word))
    except EnvhistError:
        return False
    name = b"%b:%b" % (snapshot.commit.encode("ascii"), stored_path(path))
    return session.history.repository.git.try_run("cat-file", "-e", name).status == 0
