"""Start the watcher of a working tree in the background, and stop it."""

from __future__ import annotations

import os
import time

from git_envhist.git.process import clean_environment
from git_envhist.git.repository import Repository
from git_envhist.platform import SYSTEM, own_command
from git_envhist.watcher.client import exchange, socket_path

PROGRAM = "watcher-process"
"""The subcommand of `git-envhist` that is the watcher."""
SHELL = 'cd / && "$@" </dev/null >/dev/null 2>&1 &'
"""The caller does not wait for the process and is not its parent."""
START_LIMIT = 60.0
"""Seconds in which a watcher watches an environment of a million files for the first time."""
POLL = 0.05


def may_run() -> bool:
    """Return whether this system can have a watcher."""
    return SYSTEM.proc and SYSTEM.fork


def is_running(state: str) -> bool:
    """Return whether a watcher answers."""
    return os.path.exists(socket_path(state)) and exchange(state, {"op": "status"}) is not None


def start(repository: Repository) -> None:
    """Start the watcher in the background; it ends at once if another one runs."""
    kind = ("library" if repository.library else "plain") if repository.plain else "git"
    words = [PROGRAM, kind, repository.root, repository.git_dir, repository.common_dir]
    quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    command = ["sh", "-c", SHELL, "sh", *own_command("envhist"), *words]
    child = os.posix_spawn("/bin/sh", command, clean_environment(), file_actions=quiet, setsid=True)
    os.waitpid(child, 0)


def wait_until_running(state: str, limit: float = START_LIMIT) -> bool:
    """Return whether the watcher answers within a time limit."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if is_running(state):
            return True
        time.sleep(POLL)
    return False


def stop(state: str) -> bool:
    """Stop the watcher; return whether one ran."""
    return os.path.exists(socket_path(state)) and exchange(state, {"op": "stop"}) is not None
