"""Start gc once a day, in the background after a capture; store the problems that it finds.

A stamp file has the time of the last start; it is created at the first capture. git's own switches apply: `gc.auto=0`
or `maintenance.auto=false` disables the daily run.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from git_envhist.git.list_config import parse_config
from git_envhist.git.process import SAFE_GIT, clean_environment, run_to_end
from git_envhist.git.repository import Repository
from git_envhist.platform import own_command

STAMP = "upkeep"
LIST_SCOPES = ("config", "--list", "-z", "--show-scope")
DAY = 24 * 3600.0
AGAIN = 3600.0
"""Seconds until the next attempt if other processes were running."""
SHELL = 'cd / && "$@" </dev/null >/dev/null 2>&1 &'
"""The capture does not wait for the child and is not its parent; the child keeps no directory in use that a restore
may remove.
"""
LOWEST = 19


def start_if_due(repository: Repository) -> bool:
    """Start the daily run in the background if it is due. Return whether it was started."""
    stamp = os.path.join(repository.common_state, STAMP)
    try:
        last = os.stat(stamp).st_mtime
    except FileNotFoundError:
        _touch(stamp, time.time())
        return False
    now = time.time()
    # A stamp in the future was written with another clock.
    if last <= now < last + DAY or not sys.executable or _is_switched_off(repository):
        return False
    _touch(stamp, now)
    _start(repository)
    return True


def postpone(repository: Repository) -> None:
    """Repeat the daily run after an hour instead of a day."""
    with suppress(OSError):
        _touch(os.path.join(repository.common_state, STAMP), time.time() - DAY + AGAIN)


def lower_priority() -> None:
    """Lower this process's priority below all others."""
    with suppress(OSError):
        os.nice(LOWEST)


def _touch(stamp: str, when: float) -> None:
    os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.utime(stamp, (when, when))


def _is_switched_off(repository: Repository) -> bool:
    # Our own repositories disable git's gc; there only the user's configuration counts.
    config = _users_config(repository) if repository.plain else dict(repository.read_config())
    return config.get("gc.auto") == "0" or config.get("maintenance.auto") in ("false", "no", "off", "0")


def _users_config(repository: Repository) -> dict[str, str | None]:
    """Return the configuration without the repository's own."""
    done = run_to_end([*SAFE_GIT, *LIST_SCOPES], repository.git.environment)
    listed = done.out.split(b"\0")
    pairs = zip(listed[::2], listed[1::2], strict=False)
    users = b"\0".join(item for scope, item in pairs if scope != b"local")
    return dict(parse_config(done._replace(out=users)))


def _start(repository: Repository) -> None:
    environment = clean_environment()
    # A capture may have been given a fixed commit date: compared with that, the trash would look many years old.
    environment.pop(b"GIT_COMMITTER_DATE", None)
    if repository.plain:
        # Its directory may be inside a repository of the user's, which must not be cleaned instead.
        kind = "library" if repository.library else "plain"
        places = (repository.root, repository.git_dir, repository.common_dir)
        words = [*own_command("upkeep"), kind, *places]
    else:
        environment[b"GIT_DIR"] = os.fsencode(repository.git_dir)
        environment[b"GIT_WORK_TREE"] = os.fsencode(repository.root)
        words = [*own_command("envlog"), "-C", repository.root, "gc", "--auto"]
    # The shell prints an error if this process's directory was removed.
    quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(
        "/bin/sh", ["sh", "-c", SHELL, "sh", *words], environment, file_actions=quiet, setsid=True
    )
    os.waitpid(child, 0)
