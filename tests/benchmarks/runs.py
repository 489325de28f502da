"""Run a program and measure its cost: seconds, and the memory of all its processes."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

INTERVAL = 0.02


@dataclass(frozen=True)
class Job:
    """A program, ready to run."""

    words: Sequence[str]
    cwd: Path
    environment: Mapping[str, str]


class Cost(float):
    """Elapsed seconds, with the CPU seconds, which a busy machine changes less."""

    processor = 0.0

    @classmethod
    def of(cls, wall: float, processor: float) -> Cost:
        """Return a cost from both."""
        cost = cls(wall)
        cost.processor = processor
        return cost


class Failed(Exception):
    """A measured program failed."""


def seconds(jobs: Sequence[Job], *, flush: Callable[[], None] = os.sync) -> Cost:
    """Return the cost of the jobs in sequence; `flush` writes pending data to the disk before the clock starts."""
    flush()
    start, worked = time.perf_counter(), _processor()
    for job in jobs:
        finish(start_job(job), job)
    return Cost.of(time.perf_counter() - start, _processor() - worked)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def middle(costs: Sequence[float]) -> float:
    """Return the median of the elapsed and of the CPU seconds separately."""
    return Cost.of(median(costs), median(getattr(cost, "processor", 0.0) for cost in costs))


def text(job: Job) -> str:
    """Return the output of the program."""
    done = subprocess.run(job.words, cwd=job.cwd, env=dict(job.environment), capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"'{' '.join(job.words)}': {done.stderr.strip()}")
    return done.stdout.strip()


def peak_memory(job: Job) -> int:
    """Return the peak memory of the program and all its children; shared pages count once.

    The control group is not used: it also counts the page cache of every file that was read or written.
    """
    running = start_job(job)
    peak = 0
    while running.poll() is None:
        peak = max(peak, sum(map(_proportional, _family(running.pid))))
        time.sleep(INTERVAL)
    finish(running, job)
    return peak


def start_job(job: Job) -> subprocess.Popen[bytes]:
    """Start the program and discard its output."""
    return subprocess.Popen(
        job.words,
        cwd=job.cwd,
        env=dict(job.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(running: subprocess.Popen[bytes], job: Job) -> None:
    """Wait for the program to end."""
    try:
        _, complaint = running.communicate()
    except BaseException:
        running.kill()
        running.wait()
        raise
    if running.returncode:
        raise Failed(f"'{' '.join(job.words)}': {complaint.decode('utf-8', 'replace').strip()}")


def _family(pid: int) -> list[int]:
    family = [pid]
    for member in family:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{member}/task"):
                family += map(int, Path(f"/proc/{member}/task/{task}/children").read_text().split())
    return family


def _proportional(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
