"""Where the histories of environments are kept, and what is kept with each moment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from git_envhist.compat.keeping import LibraryStorage
from git_envhist.errors import EnvhistError
from git_envhist.model import Snapshot
from git_envhist.opening import COMPAT, own_data

ENVIRONMENT, UNDO = "environment.git", "undo.git"
USER_NAME, USER_EMAIL = "Chimera", "chimera@local"


class PathEscapes(PermissionError, ValueError):
    """A path that leads out of the working directory."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Path escapes workdir: {path}")


def keeping(inner: str) -> LibraryStorage:
    """Where this library's histories of one kind are."""
    return LibraryStorage(os.path.join(own_data(os.environ), COMPAT, "chimera"), inner)


def of_meta(snapshot: Snapshot, key: str) -> str | None:
    """What a card says under a key."""
    return dict(snapshot.meta).get(key)


def as_os_error(error: EnvhistError) -> OSError:
    """What a caller who knows nothing of us can be expected to catch."""
    return OSError(f"{error}" + (f" ({error.hint})" if error.hint else ""))


@contextmanager
def told_as_os_errors() -> Iterator[None]:
    """What goes wrong in here is told in words that this library's callers know."""
    try:
        yield
    except EnvhistError as error:
        raise as_os_error(error) from error
