"""Timelines that began anew because their newest snapshot could not be read: what stood before it may be whole.

No ref leads there any more, so that to git it is garbage. Until a repair has put it back nothing of it goes.
"""

from __future__ import annotations

import os
from contextlib import suppress

from git_envhist.store.durable import cannot_write, sync, sync_directory
from git_envhist.store.locks import state_directory
from git_envhist.system import open_file_only

FILE = "left-behind"


def read_left_behind(common_state: str) -> list[str]:
    """The names of the timelines."""
    try:
        with open(
            os.path.join(common_state, FILE), encoding="utf-8", errors="replace", opener=open_file_only
        ) as file:
            return list(dict.fromkeys(file.read().split()))
    except OSError:
        return []


def remember_left_behind(common_state: str, timeline: str) -> None:
    """Add one, for good: before its ref moves."""
    path = os.path.join(state_directory(common_state), FILE)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, os.fsencode(f"{timeline}\n"))
            sync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(common_state)
    except OSError as error:
        raise cannot_write(error, path) from error


def forget_left_behind(common_state: str) -> None:
    """Nothing is missing from any of them."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(common_state, FILE))
