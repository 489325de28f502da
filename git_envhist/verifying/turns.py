"""One check at a time in a working tree: two would get in each other's way, and spoil each other's verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from git_envhist.errors import Refused
from git_envhist.store.locks import locked, locked_now, state_directory
from git_envhist.store.repository import Repository
from git_envhist.verifying.runner import UNDER_CHECK

LOCK = "check.lock"


class InsideCheck(Refused):
    """A check that runs a check of its own environment would wait for itself."""

    code = "inside-check"

    def __init__(self) -> None:
        super().__init__(
            "this runs inside a check of the same environment", hint="the check itself must not check"
        )


def is_inside(repository: Repository, environ: Mapping[str, str]) -> bool:
    """Whether this is run by a check of this working tree."""
    return repository.root in environ.get(UNDER_CHECK, "").split(os.pathsep)


@contextmanager
def check_lock(
    repository: Repository, environ: Mapping[str, str], waiting: Callable[[], None] | None
) -> Iterator[None]:
    """Nobody else checks this working tree."""
    if is_inside(repository, environ):
        raise InsideCheck
    with locked(_lock(repository), waiting=waiting):
        yield


def somebody_checks(repository: Repository) -> bool:
    """Whether a check of this working tree is under way."""
    with locked_now(_lock(repository)) as free:
        return not free


def _lock(repository: Repository) -> str:
    return os.path.join(state_directory(repository.state), LOCK)
