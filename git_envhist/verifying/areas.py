"""Places for throw-away environments: each is held by a lock that goes with its process, then anybody clears it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from git_envhist.forking.grounds import clear
from git_envhist.store.durable import cannot_write
from git_envhist.store.locks import locked, locked_now, state_directory

LOCK = "lock"
TREE = "tree"


def hidden_base(common_state: str) -> str:
    """Inside the git directory: on its file system, never captured. The environment is above it, so nothing that looks
    for things in the directories above may run there by that path."""
    return os.path.join(common_state, "aside")


def open_base(environ: Mapping[str, str]) -> str:
    """Away from every environment."""
    home = environ.get("HOME") or os.path.expanduser("~")
    configured = environ.get("XDG_CACHE_HOME", "")
    cache = configured if configured.startswith("/") else f"{home}/.cache"
    return os.path.join(cache, "git-envhist", "aside")


@contextmanager
def area(base: str) -> Iterator[str]:
    """A private directory; it is gone afterwards, and where that was not to be, with the next one."""
    with ExitStack() as held:
        place = _make(base, held)
        try:
            yield place
        finally:
            clear(place)


def sweep(base: str) -> None:
    """Clear what runs that were killed have left."""
    if os.path.isdir(base):
        with locked(base + ".lock"):
            _sweep(base)


def _make(base: str, held: ExitStack) -> str:
    state_directory(base)
    # Nobody takes a place for left between its making and its locking.
    with locked(base + ".lock"):
        _sweep(base)
        try:
            place = tempfile.mkdtemp(dir=base)
        except OSError as error:
            raise cannot_write(error, base) from error
        held.enter_context(locked(os.path.join(place, LOCK)))
    return place


def _sweep(base: str) -> None:
    for name in os.listdir(base):
        place = os.path.join(base, name)
        with suppress(OSError), locked_now(os.path.join(place, LOCK)) as free:
            if free:
                clear(place)
