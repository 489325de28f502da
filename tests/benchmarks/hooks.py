"""Measure what hooks add to `git commit`: `python -m tests.benchmarks.hooks [commits] [in a row]` prints a table.

Commits are made in turns in two repositories, one with git-envhist's hooks and one without. After each commit (with
[in a row]: after each such group) the program waits for the worker, so that it measures the hook and not the capture
of the commit before. A third repository has a hook that does nothing, which shows what git itself spends on calling
one.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.conftest import sealed_environment
from tests.integrations.hooks import is_idle, wait_for, write_hook
from tests.support.programs import make_programs
from tests.support.repository import Repo, make_repo

COMMITS = 200
NOTHING = "#!/bin/sh\nexit 0\n"


def main(commits: int, in_a_row: int = 1) -> None:
    with tempfile.TemporaryDirectory() as place:
        places = Path(place)
        home = places / "home"
        home.mkdir()
        os.environ.update(sealed_environment(home))
        programs = places / "programs"
        programs.mkdir()
        os.environ["PATH"] = f"{make_programs(programs)}{os.pathsep}{os.environ['PATH']}"
        repos = {name: make_repo(places / name) for name in ("none", "empty", "ours")}
        write_hook(repos["empty"], "post-commit", NOTHING)
        repos["ours"].run("envlog", "install", check=True)
        measured = _measure(repos, commits, in_a_row)
    _tell(measured, commits)


def _measure(repos: dict[str, Repo], commits: int, in_a_row: int) -> dict[str, list[tuple[float, float]]]:
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in repos}
    for first in range(0, commits, in_a_row):
        for name, repo in repos.items():
            for number in range(first, min(first + in_a_row, commits)):
                repo.write("app.py", f"print({number})\n")
                measured[name].append(_commit(repo, number))
        wait_for(partial(_has_taken, repos["ours"]), f"the capture of commit {first}")
    return measured


def _commit(repo: Repo, number: int) -> tuple[float, float]:
    """Return (elapsed milliseconds, CPU milliseconds) of one commit in the foreground."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    repo.git("commit", "-q", "-a", "-m", f"number {number}")
    passed = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return passed * 1000, spent * 1000


def _has_taken(repo: Repo) -> bool:
    log = repo.path / ".git/envhist/hooks/log"
    committed = (repo.path / ".git/logs/HEAD").stat().st_mtime_ns
    return log.exists() and log.stat().st_mtime_ns > committed and is_idle(repo)


def _tell(measured: dict[str, list[tuple[float, float]]], commits: int) -> None:
    print(f"`git commit`, {commits} of each, in turns; milliseconds")
    print("| hooks | median | p95 | processors, median |")
    print("| --- | ---: | ---: | ---: |")
    for name, rows in measured.items():
        clock, spent = sorted(row[0] for row in rows), [row[1] for row in rows]
        p95 = clock[round(0.95 * (len(clock) - 1))]
        print(f"| {name} | {statistics.median(clock):.1f} | {p95:.1f} | {statistics.median(spent):.1f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or [COMMITS]))
