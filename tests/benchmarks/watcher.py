"""Measure captures with and without the watcher: `python -m tests.benchmarks.watcher [--directory D] [files...]`.

For each number of files: a generated tree (8 files per directory, 500 of them tracked), captures where nothing and
where ten files changed, the hook of an agent before a tool, and the cost of the watcher: memory, processor time while
files are written, and the time of `git status`, of `git checkout` and of writing 100,000 files beside it. Each row is
the median and the 95th percentile of some runs in milliseconds, or a ratio. On a busy machine: `chrt -f 10 python ...`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from git_envhist.watcher.client import exchange
from tests.benchmarks.agent_hooks import SETTLED, call
from tests.conftest import sealed_environment
from tests.support.programs import make_programs
from tests.support.repository import make_repo

RUNS = 15
FILES_PER_DIRECTORY = 8
TRACKED = 500
WRITTEN = 100_000
SIZES = (100_000, 233_000)


class WatcherBenchmark:
    """One tree, measured without a watcher and with it."""

    def __init__(self, place: Path, files: int) -> None:
        self.repo = make_repo(place)
        self._files = files
        self._number = 0
        for number in range(0, files - TRACKED, FILES_PER_DIRECTORY):
            directory = place / f"node_modules/p{number % 400}/lib/d{number}"
            directory.mkdir(parents=True)
            for file in range(FILES_PER_DIRECTORY):
                (directory / f"{file}.js").write_text(f"module.exports = {number + file}\n")
        for number in range(TRACKED):
            self.repo.write(f"src/{number % 20}/{number}.py", f"x = {number}\n")
        self.repo.write(".gitignore", "node_modules\nwritten\n")
        self.repo.commit()
        self.repo.git("branch", "other")
        self.repo.run("envlog", "install", "--agent", "claude-code", check=True)
        self.repo.git("config", "envhist.agentIdle", "10m")
        for _ in range(2):
            self._capture()

    def measure(self) -> None:
        """Print the rows of this tree."""
        without = self._costs()
        self._rows("no watcher")
        self.repo.run("envlog", "install", "--watcher", check=True)
        for _ in range(2):
            self._capture()
        self._rows("watcher")
        status = self._status()
        print(
            f"{self._files:9,} memory {status['memory'] / 1e6:.1f} MB for {status['directories']:,} directories"
        )
        before = status["processor_seconds"]
        with_it = self._costs()
        used = self._status()["processor_seconds"] - before
        print(f"{self._files:9,} processor time of the watcher during these: {used:.2f} s")
        for name, seconds in with_it.items():
            print(
                f"{self._files:9,} {name:34} {without[name]:8.3f} s, with the watcher {seconds / without[name]:5.2f}"
            )

    def close(self) -> None:
        self.repo.run("envlog", "uninstall", "--watcher")

    def _status(self) -> dict[str, float]:
        found = exchange(str(self.repo.path / ".git/envhist"), {"op": "status"})
        assert found is not None
        return found

    def _rows(self, how: str) -> None:
        rows: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "nothing changed, --if-changed": (lambda: None, lambda: self._capture("--if-changed")),
            "nothing changed": (lambda: None, self._capture),
            "10 files changed": (self._change, self._capture),
            "envdiff to now": (lambda: None, lambda: self._program("git-envdiff")),
            "hook before a tool, nothing changed": (lambda: None, self._hook),
            "hook before a tool, a file changed": (lambda: self._change(1), self._hook),
        }
        self._hook()
        time.sleep(SETTLED)
        for name, (before, run) in rows.items():
            taken = [self._timed(before, run) for _ in range(RUNS)]
            middle, high = statistics.median(taken), sorted(taken)[int(0.95 * RUNS)]
            print(f"{self._files:9,} {name:36} {how:10} {1000 * middle:7.0f} {1000 * high:7.0f}", flush=True)

    def _costs(self) -> dict[str, float]:
        """Return the seconds of programs beside which the watcher works."""
        jobs: dict[str, Callable[[], object]] = {
            "git status": lambda: self.repo.git("status", "--porcelain", "--ignored=no"),
            "git checkout": self._switch,
            f"write {WRITTEN:,} files": self._write,
        }
        return {
            name: statistics.median(self._timed(lambda: None, job) for _ in range(5))
            for name, job in jobs.items()
        }

    @staticmethod
    def _timed(before: Callable[[], object], run: Callable[[], object]) -> float:
        before()
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    def _program(self, *words: str) -> None:
        subprocess.run(words, cwd=self.repo.path, env=self.repo.env, check=True, stdout=subprocess.DEVNULL)

    def _capture(self, *words: str) -> None:
        self._program("git-envlog", "capture", "-m", "measured", *words)

    def _hook(self) -> None:
        call(self.repo, "Write", f"{time.time_ns()}")

    def _change(self, files: int = 10) -> None:
        for number in range(files):
            self._number += 1
            start = number * FILES_PER_DIRECTORY
            path = f"node_modules/p{start % 400}/lib/d{start}/0.js"
            self.repo.write(path, f"changed {self._number}\n")

    def _switch(self) -> None:
        for number in range(TRACKED):
            self.repo.write(f"src/{number % 20}/{number}.py", f"other {self._number}\n")
        self.repo.git("checkout", "-q", "-f", "other")

    def _write(self) -> None:
        top = self.repo.path / "written"
        for number in range(WRITTEN // 100):
            directory = top / f"{number}"
            directory.mkdir(parents=True)
            for file in range(100):
                (directory / f"{file}").write_bytes(b"written")
        shutil.rmtree(top)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure captures with and without the watcher.")
    parser.add_argument("files", type=int, nargs="*")
    parser.add_argument("--directory", default=None)
    options = parser.parse_args()
    for files in options.files or SIZES:
        with tempfile.TemporaryDirectory(dir=options.directory) as place:
            home, programs = Path(place, "home"), Path(place, "programs")
            home.mkdir()
            programs.mkdir()
            os.environ.update(sealed_environment(home))
            path = os.environ["PATH"]
            os.environ["PATH"] = f"{make_programs(programs)}{os.pathsep}{path}"
            benchmark = WatcherBenchmark(Path(place, "tree"), files)
            try:
                benchmark.measure()
            finally:
                benchmark.close()
                os.environ["PATH"] = path


if __name__ == "__main__":
    main()
