"""Names and paths: which names are allowed, quoting as git prints paths, and pathspecs without `--`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

from git_envhist.cli.command import Session
from git_envhist.errors import AmbiguousRevision, EnvhistError, UsageError
from git_envhist.history.resolve import resolve_range
from git_envhist.model import Snapshot
from git_envhist.snapshots.stored_names import stored_path

# Accept paths after a revision without `--`, as git does, if each exists now or in the snapshot.


def take_paths(session: Session, words: Sequence[str], snapshot: Snapshot, usage: str) -> None:
    """Make the words after a revision the pathspecs; raise UsageError if one exists neither now nor in the snapshot."""
    for word in words:
        if session.paths is not None or not (os.path.lexists(word) or _holds(session, snapshot, word)):
            raise UsageError(f"unexpected argument: '{word}'", hint=f"paths go after '--': {usage} -- <path>")
    session.paths = tuple(words)


def split_operands(session: Session, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the revisions of some words, and make the paths after them the pathspecs.

    As for git, a word is a path if it exists and is no revision. Raise `UsageError` for a word that is both.
    """
    is_path = session.history.catalog.is_path
    number = next((at for at, word in enumerate(words) if is_path(word)), len(words))
    for word in words[: number + 1]:
        if is_path(word) and _is_revision(session, word):
            raise UsageError(
                f"ambiguous argument '{word}': both a snapshot and a path",
                hint=f"put '--' between them: git envlog {word} -- or git envlog -- {word}",
            )
    for word in words[number:]:
        if not is_path(word):
            raise UsageError(
                f"no such path: '{word}'", hint="paths of the past go after '--': git envlog -- <path>"
            )
    session.paths = words[number:] or None
    return words[:number]


def _is_revision(session: Session, word: str) -> bool:
    try:
        resolve_range(word, session.history.catalog, session.history.now)
    except AmbiguousRevision:
        return True
    except EnvhistError:
        return False
    return True


def _holds(session: Session, snapshot: Snapshot, word: str) -> bool:
    try:
        path = session.history.environment_path(os.fsencode(word))
    except EnvhistError:
        return False
    git = session.history.repository.git
    name = b"%b:%b" % (snapshot.commit.encode("ascii"), stored_path(path))
    if git.try_run("cat-file", "-e", name).status == 0:
        return True
    # A git tree contains no empty directory, socket or pipe; the manifest does.
    with closing(session.history.reader(snapshot)) as files:
        return files.entry(path) is not None
