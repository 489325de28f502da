"""Run a command in a control group with a memory limit, of version 1 or 2."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path("/sys/fs/cgroup")
VERSION_1 = ROOT / "memory"
JOIN = 'echo $$ > "$0" && exec "$@"'
MIB = 1 << 20


@dataclass(frozen=True)
class Ran:
    """A command's result, with the memory that it took."""

    status: int
    out: str
    err: str
    seconds: float
    peak: int
    """The most bytes charged to the group, including the page cache."""
    killed: int
    """Processes that the kernel killed for memory."""

    @property
    def told(self) -> str:
        return f"status {self.status}, {self.seconds:.1f} s, {self.peak / MIB:.0f} MiB, killed {self.killed}"


def is_available() -> bool:
    """Return whether this process may make a group with a memory limit."""
    if os.geteuid() != 0:
        return False
    controllers = ROOT / "cgroup.controllers"
    # A chroot without /sys has neither.
    return VERSION_1.is_dir() or (controllers.exists() and "memory" in controllers.read_text().split())


@contextmanager
def _group(limit: int) -> Iterator[Path]:
    place = (VERSION_1 if VERSION_1.is_dir() else ROOT) / f"envhist-scale-{os.getpid()}"
    place.mkdir()
    try:
        name = "memory.limit_in_bytes" if VERSION_1.is_dir() else "memory.max"
        (place / name).write_text(str(limit))
        with suppress(OSError):
            (place / ("memory.memsw.limit_in_bytes" if VERSION_1.is_dir() else "memory.swap.max")).write_text(
                str(limit) if VERSION_1.is_dir() else "0"
            )
        yield place
    finally:
        _remove(place)


def _remove(place: Path) -> None:
    for _ in range(100):
        try:
            place.rmdir()
            return
        except OSError:  # a process of the group is still ending
            time.sleep(0.05)


def run_limited(words: Sequence[str], cwd: Path, environment: dict[str, str], limit: int) -> Ran:
    """Run a command with all its children under a limit in bytes."""
    with _group(limit) as place:
        began = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen(
                ["sh", "-c", JOIN, str(place / "cgroup.procs"), *words],
                cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
            child.wait()
            seconds = time.monotonic() - began
            said = [_content(file) for file in (out, err)]
        first = VERSION_1.is_dir()
        peak = place / ("memory.max_usage_in_bytes" if first else "memory.peak")
        events = (place / ("memory.oom_control" if first else "memory.events")).read_text()
        killed = sum(int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill "))
        read = int(peak.read_text()) if peak.exists() else 0
        return Ran(child.returncode, said[0], said[1], seconds, read, killed)


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
