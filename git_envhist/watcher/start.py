"""Start the watcher of a working tree in the background, and stop it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from git_envhist.disk import Durability, remove_if_present, replace_file, state_directory
from git_envhist.git.process import clean_environment
from git_envhist.git.repository import Repository
from git_envhist.locks import try_lock
from git_envhist.peers import can_recognise, restrictions_of
from git_envhist.platform import SYSTEM, open_file_only, own_command
from git_envhist.watcher.client import LOCK, exchange, socket_path

PROGRAM = "watcher-process"
"""The subcommand of `git-envhist` that is the watcher."""
SHELL = 'cd / && exec "$@" &'
"""The caller does not wait for the process and is not its parent."""
START_LIMIT = 60.0
"""Seconds in which a watcher watches an environment of a million files for the first time."""
POLL = 0.05
FAILED = "watcher-failed"
"""The file with the reason for which the watcher cannot watch this environment."""
TRY_AGAIN = 3600.0
"""Seconds after which a capture tries again to start a watcher that failed."""


def why_unavailable() -> str:
    """Return why this process can have no watcher; empty if it can."""
    if not SYSTEM.proc or not SYSTEM.fork:
        return "this system has no inotify"
    own = restrictions_of("self")
    if own is None or not can_recognise(own):
        return "a process that cannot gain privileges (NoNewPrivs) cannot tell whether another one is in a sandbox"
    return ""


def is_running(state: str) -> bool:
    """Return whether a watcher answers."""
    return os.path.exists(socket_path(state)) and exchange(state, {"op": "status"}) is not None


def is_locked(state: str) -> bool:
    """Return whether a watcher exists, whether it answers or not; a killed one leaves its socket, but not its lock."""
    path = os.path.join(state, LOCK)
    if not os.path.exists(path):
        return False
    with try_lock(path) as acquired:
        return not acquired


def start(repository: Repository) -> None:
    """Start the watcher in the background; it ends at once if another one runs."""
    note_failure(repository.state, "")
    kind = ("library" if repository.library else "plain") if repository.plain else "git"
    words = [PROGRAM, kind, repository.root, repository.git_dir, repository.common_dir]
    # A lock or a pipe of the caller would stay in use for as long as the watcher runs.
    files: list[tuple[Any, ...]] = [
        *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)),
        *((os.POSIX_SPAWN_CLOSE, number) for number in _inherited()),
    ]
    command = ["sh", "-c", SHELL, "sh", *own_command("envhist"), *words]
    child = os.posix_spawn("/bin/sh", command, clean_environment(), file_actions=files, setsid=True)
    os.waitpid(child, 0)


def _inherited() -> list[int]:
    """Return the descriptors beside the standard streams that a new program gets from this process."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        # The descriptor of the listing itself is closed by now.
        with suppress(OSError):
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return found


def start_if_missing(repository: Repository) -> bool:
    """Start the watcher unless one runs or it failed recently; return whether it was started."""
    if why_unavailable():
        return False
    if is_locked(state_directory(repository.state)):
        return False
    with suppress(OSError):
        if time.time() < os.stat(os.path.join(repository.state, FAILED)).st_mtime + TRY_AGAIN:
            return False
    start(repository)
    return True


def note_failure(state: str, reason: str) -> None:
    """Write why the watcher cannot watch this environment; an empty reason removes the note."""
    path = os.path.join(state, FAILED)
    if reason:
        replace_file(path, f"{reason}\n".encode("utf-8", "replace"), durability=Durability.NONE)
    else:
        remove_if_present(path)


def read_failure(state: str) -> str:
    """Return why the watcher could not watch this environment; empty if that is not known."""
    try:
        with open(
            os.path.join(state, FAILED), encoding="utf-8", errors="replace", opener=open_file_only
        ) as file:
            return file.read(1000).strip()
    except OSError:
        return ""


def wait_until_running(state: str, limit: float = START_LIMIT) -> bool:
    """Return whether the watcher answers within a time limit; False as soon as it failed."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if is_running(state):
            return True
        if read_failure(state):
            break
        time.sleep(POLL)
    return False


def stop(state: str) -> bool:
    """Stop the watcher; return whether one ran. One that does not answer now ends as soon as it continues."""
    if not is_locked(state):
        return False
    if not os.path.exists(socket_path(state)):
        # It watches the environment for the first time.
        wait_until_running(state)
    if exchange(state, {"op": "stop"}) is None:
        remove_if_present(socket_path(state))
    return True
