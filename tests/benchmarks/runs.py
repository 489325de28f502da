"""Runs a program and says what it cost: seconds, and the memory of all of its processes."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

INTERVAL = 0.02


@dataclass(frozen=True)
class Job:
    """One program, ready to be run."""

    words: Sequence[str]
    cwd: Path
    environment: Mapping[str, str]


class Cost(float):
    """Seconds on the wall; beside them those of processors, which a busy machine changes less."""

    processor = 0.0

    @classmethod
    def of(cls, wall: float, processor: float) -> Cost:
        """Both."""
        cost = cls(wall)
        cost.processor = processor
        return cost


class Failed(Exception):
    """A program that is measured did not do its work."""


def seconds(jobs: Sequence[Job]) -> Cost:
    """How long they take, one after another; what is still to be written goes to the disk before the clock runs."""
    os.sync()
    start, worked = time.perf_counter(), _processor()
    for job in jobs:
        finish(start_job(job), job)
    return Cost.of(time.perf_counter() - start, _processor() - worked)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def middle(costs: Sequence[float]) -> float:
    """The median, of the wall and of the processors apart."""
    return Cost.of(median(costs), median(getattr(cost, "processor", 0.0) for cost in costs))


def text(job: Job) -> str:
    """What it prints."""
    done = subprocess.run(job.words, cwd=job.cwd, env=dict(job.environment), capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"'{' '.join(job.words)}': {done.stderr.strip()}")
    return done.stdout.strip()


def peak_memory(job: Job) -> int:
    """The most bytes that the program and all its children held at one time; pages that are shared count once.

    Not from the control group: that counts the page cache of every file which was read or written, too.
    """
    running = start_job(job)
    peak = 0
    while running.poll() is None:
        peak = max(peak, sum(map(_proportional, _family(running.pid))))
        time.sleep(INTERVAL)
    finish(running, job)
    return peak


def start_job(job: Job) -> subprocess.Popen[bytes]:
    """The program, running; what it prints goes nowhere."""
    return subprocess.Popen(
        job.words,
        cwd=job.cwd,
        env=dict(job.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(running: subprocess.Popen[bytes], job: Job) -> None:
    """Wait for its end."""
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
