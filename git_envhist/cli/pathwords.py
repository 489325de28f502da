"""Accept paths after a revision without `--`, as git does, if each exists now or in the snapshot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

from git_envhist.cli.command import Session
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.model import Snapshot
from git_envhist.store.names import stored_path


def take_paths(session: Session, words: Sequence[str], snapshot: Snapshot, usage: str) -> None:
    """Make the words after a revision the pathspecs; `UsageError` if one exists neither now nor in the snapshot."""
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
    git = session.history.repository.git
    name = b"%b:%b" % (snapshot.commit.encode("ascii"), stored_path(path))
    if git.try_run("cat-file", "-e", name).status == 0:
        return True
    # A tree of git holds no empty directory, no socket and no pipe: the manifest does.
    with closing(session.history.reader(snapshot)) as files:
        return files.entry(path) is not None
