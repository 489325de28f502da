"""Measure the cost of facts: `python -m tests.benchmarks.facts [--small]` captures in turn with them and without.

Uses two histories of one environment, so that each builds on its own earlier captures. Reports medians of CPU seconds
and of elapsed seconds, with nothing changed and after a package was added.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.corpus import FULL, SMALL, build
from tests.support.programs import make_programs

RUNS = 15
PACKAGE = "Metadata-Version: 2.1\nName: package-{0}\nVersion: 1.{0}\n"
WITHOUT = {"GIT_ENVHIST_WITHOUT": "facts"}


def capture(top: Path, git_dir: Path, programs: Path, extra: dict[str, str]) -> tuple[float, float]:
    """Return the CPU seconds and the elapsed seconds of a capture."""
    environment = {**os.environ, "GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(top), **extra}
    started = time.monotonic()
    child = os.posix_spawn(
        programs / "git-envlog",
        ["git-envlog", "capture", "-m", "x"],
        environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime, time.monotonic() - started


def install(top: Path, number: int) -> None:
    """Write the files that pip writes for a small package."""
    place = top / f".venv/lib/python3.11/site-packages/package_{number}-1.{number}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(PACKAGE.format(number))
    (place / "INSTALLER").write_text("pip\n")


def measure(
    title: str, histories: dict[str, Callable[[], tuple[float, float]]], before: Callable[[int], None]
) -> None:
    """Print the medians of some captures in turn; the first turn only warms caches."""
    samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in range(RUNS + 1):
        before(run)
        for name in sorted(histories, reverse=bool(run % 2)):
            samples[name].append(histories[name]())
    for name, taken in samples.items():
        work, wall = (statistics.median(one[at] for one in taken[1:]) * 1000 for at in (0, 1))
        print(f"{title:<20} {name:<8} {work:6.0f} ms of processors  {wall:6.0f} ms of wall")


def main() -> None:
    """Build, capture once, then in turns."""
    scale = SMALL if "--small" in sys.argv else FULL
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as scratch:
        top = Path(scratch) / "environment"
        build(top, scale)
        programs = make_programs(Path(scratch))
        histories: dict[str, Callable[[], tuple[float, float]]] = {}
        for name, extra in (("with", {}), ("without", WITHOUT)):
            git_dir = Path(scratch) / f"{name}.git"
            os.system(f"cp -a '{top}/.git' '{git_dir}'")
            histories[name] = lambda git_dir=git_dir, extra=extra: capture(top, git_dir, programs, extra)  # type: ignore[misc]
            work, wall = histories[name]()
            print(
                f"{'first':<20} {name:<8} {work * 1000:6.0f} ms of processors  {wall * 1000:6.0f} ms of wall",
                flush=True,
            )
        measure("nothing changed", histories, lambda run: None)
        measure("a package came", histories, lambda run: install(top, run))


if __name__ == "__main__":
    main()
