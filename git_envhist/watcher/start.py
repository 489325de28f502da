"""Start the watcher of a working tree in the background, and stop it."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from git_envhist.disk import Durability, remove_if_present, replace_file, state_directory
from git_envhist.git.process import clean_environment
from git_envhist.git.repository import Repository
from git_envhist.locks import try_lock
from git_envhist.platform import SYSTEM, open_file_only, own_command
from git_envhist.watcher.client import LOCK, exchange, socket_path

PROGRAM = "watcher-process"
"""The subcommand of `git-envhist` that is the watcher."""
SHELL = 'cd / && "$@" </dev/null >/dev/null 2>&1 &'
"""The caller does not wait for the process and is not its parent."""
START_LIMIT = 60.0
"""Seconds in which a watcher watches an environment of a million files for the first time."""
POLL = 0.05
FAILED = "watcher-failed"
"""The file with the reason for which the watcher cannot watch this environment."""
TRY_AGAIN = 3600.0
"""Seconds after which a capture tries again to start a watcher that failed."""


def may_run() -> bool:
    """Return whether this system can have a watcher."""
    return SYSTEM.proc and SYSTEM.fork


def is_running(state: str) -> bool:
    """Return whether a watcher answers."""
    return os.path.exists(socket_path(state)) and exchange(state, {"op": "status"}) is not None


def start(repository: Repository) -> None:
    """Start the watcher in the background; it ends at once if another one runs."""
    note_failure(repository.state, "")
    kind = ("library" if repository.library else "plain") if repository.plain else "git"
    words = [PROGRAM, kind, repository.root, repository.git_dir, repository.common_dir]
    quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    command = ["sh", "-c", SHELL, "sh", *own_command("envhist"), *words]
    child = os.posix_spawn("/bin/sh", command, clean_environment(), file_actions=quiet, setsid=True)
    os.waitpid(child, 0)


def start_if_missing(repository: Repository) -> bool:
    """Start the watcher unless one runs or it failed recently; return whether it was started."""
    if not may_run():
        return False
    with try_lock(os.path.join(state_directory(repository.state), LOCK)) as acquired:
        # A killed watcher leaves its socket behind, but not its lock.
        if not acquired:
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
    """Stop the watcher; return whether one ran."""
    return os.path.exists(socket_path(state)) and exchange(state, {"op": "stop"}) is not None
