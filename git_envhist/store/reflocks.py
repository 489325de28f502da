"""The lock files that git puts beside a ref while it moves it: whose they are when they do not go away.

A git that is killed in that moment leaves its lock for ever, and every later capture would fail. Nothing in the file
says who made it. Taken away is only a lock on a ref of ours, by who holds the kernel's lock of the working tree (no
other capture moves the ref), when it is old (git holds one for milliseconds), and no git that was running when it was
made is running still. Where the system does not tell, it stays, and a person is told.
"""

from __future__ import annotations

import os
import stat

from git_envhist.errors import EnvhistError
from git_envhist.system import SYSTEM

STALE_AFTER = 60.0
WAIT = ("-c", "core.filesRefLockTimeout=2000", "-c", "core.packedRefsTimeout=5000")
"""How long git itself waits for another git: what packs refs holds each for a moment."""
START_TIME = 19
"""The field of /proc/<pid>/stat after the command's name that says when the process began, in ticks since the boot."""


class RefLocked(EnvhistError):
    """Somebody holds the lock of a ref, or died with it."""

    code = "ref-locked"

    def __init__(self, lock: str) -> None:
        super().__init__(
            f"a ref is locked by '{lock}'",
            hint="another git is at work there, or was killed: run the command again; "
            "if no git runs in this repository, remove that file",
        )


def remove_stale_lock(path: str, now: float) -> bool:
    """Take away a lock whose git is dead; whether it went. For refs of ours, with the working tree locked."""
    try:
        seen = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(seen.st_mode) or not _is_abandoned(seen.st_mtime, now):
        return False
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # as good
    except OSError:
        return False
    return True


def _is_abandoned(made_at: float, now: float) -> bool:
    if now - made_at < STALE_AFTER:
        return False
    oldest = oldest_git() if SYSTEM.proc else None
    return oldest is not None and oldest > made_at


def oldest_git(processes: str = "/proc") -> float | None:
    """When the git that has been running longest began; None where the system does not tell."""
    try:
        booted = _boot_time(processes)
        running = [name for name in os.listdir(processes) if name.isdigit()]
    except (OSError, ValueError):
        return None
    started = (_start_of_git(f"{processes}/{name}/stat", booted) for name in running)
    return min((at for at in started if at is not None), default=float("inf"))


def _boot_time(processes: str) -> float:
    with open(f"{processes}/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    raise ValueError("no boot time")


def _start_of_git(path: str, booted: float) -> float | None:
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return None  # it ended meanwhile
    name = text[text.index(b"(") + 1 : text.rindex(b")")]
    if name != b"git" and not name.startswith(b"git-"):
        return None
    ticks = int(text[text.rindex(b")") + 2 :].split()[START_TIME])
    return booted + ticks / os.sysconf("SC_CLK_TCK")
