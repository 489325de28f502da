"""What is done by itself once a day: in the background, after a capture, behind everybody else.

A stamp says when it was begun last; a history has it from its first capture on. git's own switches serve:
`gc.auto=0` or `maintenance.auto=false`, and nothing is done by itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

from git_envhist.disk import Durability, replace_file
from git_envhist.git.config import parse_config
from git_envhist.git.process import SAFE_GIT, clean_environment, spawn
from git_envhist.git.repository import Repository
from git_envhist.platform import open_file_only, own_command

STAMP = "upkeep"
LIST_SCOPES = ("config", "--list", "-z", "--show-scope")
DAY = 24 * 3600.0
AGAIN = 3600.0
"""Seconds after which it is tried again where others were in the way."""
SHELL = 'cd / && "$@" </dev/null >/dev/null 2>&1 &'
"""The capture neither waits for it nor is its parent; it keeps no directory in use that a restore may remove."""
LOWEST = 19


def begin_if_due(repository: Repository) -> bool:
    """Begin it in the background where a day has gone; whether it was."""
    stamp = os.path.join(repository.common_state, STAMP)
    try:
        last = os.stat(stamp).st_mtime
    except FileNotFoundError:
        _touch(stamp, time.time())
        return False
    now = time.time()
    # One that lies ahead was made under another clock.
    if last <= now < last + DAY or not sys.executable or _is_switched_off(repository):
        return False
    _touch(stamp, now)
    _start(repository)
    return True


def postpone(repository: Repository) -> None:
    """Have it tried again before the day is over."""
    with suppress(OSError):
        _touch(os.path.join(repository.common_state, STAMP), time.time() - DAY + AGAIN)


def lower_priority() -> None:
    """Let everybody else go first."""
    with suppress(OSError):
        os.nice(LOWEST)


def _touch(stamp: str, when: float) -> None:
    os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.utime(stamp, (when, when))


def _is_switched_off(repository: Repository) -> bool:
    # Our own repositories switch git's own cleaning off; only what the user configured counts there.
    config = _users_config(repository) if repository.plain else dict(repository.read_config())
    return config.get("gc.auto") == "0" or config.get("maintenance.auto") in ("false", "no", "off", "0")


def _users_config(repository: Repository) -> dict[str, str | None]:
    """Return the configuration without what the repository itself says."""
    done = spawn([*SAFE_GIT, *LIST_SCOPES], repository.git.environment)
    listed = done.out.split(b"\0")
    pairs = zip(listed[::2], listed[1::2], strict=False)
    users = b"\0".join(item for scope, item in pairs if scope != b"local")
    return dict(parse_config(done._replace(out=users)))


def _start(repository: Repository) -> None:
    environment = clean_environment()
    # A capture may be given another moment than now: by that the trash would be many years old.
    environment.pop(b"GIT_COMMITTER_DATE", None)
    if repository.plain:
        # Its directory may be in a repository of the user's, which is not to be cleaned instead.
        kind = "library" if repository.library else "plain"
        places = (repository.root, repository.git_dir, repository.common_dir)
        words = [*own_command("upkeep"), kind, *places]
    else:
        environment[b"GIT_DIR"] = os.fsencode(repository.git_dir)
        environment[b"GIT_WORK_TREE"] = os.fsencode(repository.root)
        words = [*own_command("envlog"), "-C", repository.root, "gc", "--auto"]
    # The shell complains if the directory of this process is gone.
    quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(
        "/bin/sh", ["sh", "-c", SHELL, "sh", *words], environment, file_actions=quiet, setsid=True
    )
    os.waitpid(child, 0)


# What a check that came by itself found wrong: kept until a thorough one finds all well, and shown by `git envlog`.

FILE = "trouble"
MAX_LENGTH = 2000


def read_trouble(common_state: str) -> list[str]:
    """A sentence each; none where all was well."""
    try:
        with open(
            os.path.join(common_state, FILE), encoding="utf-8", errors="replace", opener=open_file_only
        ) as file:
            return file.read(MAX_LENGTH).splitlines()
    except OSError:
        return []


def save_problems(common_state: str, sentences: Iterable[str]) -> None:
    """Have it shown."""
    path = os.path.join(common_state, FILE)
    text = "".join(sentence.replace("\n", " ") + "\n" for sentence in sentences)
    replace_file(path, text.encode("utf-8", "replace"), durability=Durability.NONE)


def forget_trouble(common_state: str) -> None:
    """All is well."""
    with suppress(OSError):
        os.unlink(os.path.join(common_state, FILE))
