"""Runs a program and says what it cost: seconds, and the memory of all of its processes."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.02


@dataclass(frozen=True)
class Job:
    """One program, ready to be run."""

    words: Sequence[str]
    cwd: Path
    environment: Mapping[str, str]


Clock = Callable[[Sequence[Job]], float]
"""What is measured: seconds on the wall, or of processors."""


class Failed(Exception):
    """A program that is measured did not do its work."""


def seconds(jobs: Sequence[Job]) -> float:
    """How long they take, one after another; what is still to be written goes to the disk before the clock runs."""
    os.sync()
    start = time.perf_counter()
    for job in jobs:
        finish(start_job(job), job)
    return time.perf_counter() - start


def processor_seconds(jobs: Sequence[Job]) -> float:
    """How long processors worked for them, all of their processes: what a busy machine does not change much."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for job in jobs:
        finish(start_job(job), job)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
