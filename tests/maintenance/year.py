"""Simulate a year of work: `python -m tests.maintenance.year [--days N] [--a-day N] [--at DIR]` prints a table.

Two repositories get the same changes: sources are edited and committed, packages installed and removed, builds run, a
database and logs grow. In one of them a capture follows every step, and once a day the daily run works concurrently
with the captures: it prunes by the default policy, packs if this saves enough, and checks a share. The clock of the
captures is set; packs are made a day older every day, so that limits of a day or of two weeks apply.

Then git's commands run in both in turns: the table shows how much more CPU time they need with a history. Other
processes hardly affect this measure.

With `--at` the repositories are kept in this directory; every day is logged in `DIR/days`, and a stopped run
continues with its day.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from git_envhist.api import EnvHistory
from git_envhist.maintenance.gc import do_daily_gc
from tests.benchmarks.many_snapshots import git, sealed
from tests.objects.packing import grow_older

BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
DAY = 24 * 3600
LOG_TURNS_AT = 50_000
POINTS = (10, 50, 100, 150, 200, 250)
TURNS = 25
FIRST = ["chrt", "-f", "10"] if os.geteuid() == 0 and shutil.which("chrt") else []
HEADINGS = (
    *("day", "captures", "kept", "packs", "refs", "size", "environment", "capture", "log", "diff", "restore"),
    *("status", "git log", "commit", "fetch", "gc a moment"),
)


class Life:
    """A simulated environment; the same seed gives the same events."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self._rng = random.Random("a year")
        self._step = 0
        if not top.exists():
            self._begin()

    def restore_state(self, told: list[Any]) -> None:
        """Continue from the state returned by `state`."""
        self._step, (version, numbers, gauss) = told
        self._rng.setstate((version, tuple(numbers), gauss))

    @property
    def state(self) -> list[Any]:
        return [self._step, self._rng.getstate()]

    def _begin(self) -> None:
        top = self.top
        top.mkdir(parents=True)
        git(top, "init", "-q", "--template=")
        self._write(".gitignore", ".venv/\nnode_modules/\ndist/\n*.db\n*.log\n.env*\n")
        for number in range(80):
            self._write(f"src/part{number % 8}/module{number}.py", self._code(number, 60))
        for number in range(25):
            self._install(f".venv/lib/site-packages/package{number}", 24)
        for number in range(40):
            self._install(f"node_modules/module{number}", 20)
        self._build()
        self._write(".env.local", "API_URL=http://localhost:3000\n")
        with closing(sqlite3.connect(top / "app.db")) as database, database:
            database.execute("create table events (id integer primary key, at text, what text)")
        git(top, "add", "-A")
        git(top, "commit", "-q", "-m", "begin")
        git(top.parent, "clone", "-q", "--bare", str(top), f"{top}.git")
        git(top, "remote", "add", "origin", f"{top}.git")
        git(top, "fetch", "-q")

    def step(self, a_day: int) -> None:
        """Do one step of work; a day has several."""
        self._step += 1
        number = self._step % a_day
        for _ in range(self._rng.randrange(1, 4)):
            module = self._rng.randrange(80)
            self._write(f"src/part{module % 8}/module{module}.py", self._code(self._step * 100 + module, 60))
        log_file = self.top / "app.log"
        if log_file.exists() and log_file.stat().st_size > LOG_TURNS_AT:
            log_file.rename(log_file.with_name("old.log"))
        with open(log_file, "a", encoding="utf-8") as log:
            log.write("".join(f"{self._step} request {self._rng.random()}\n" for _ in range(20)))
        with closing(sqlite3.connect(self.top / "app.db")) as database, database:
            row = (str(self._step), f"event {self._rng.random()}" * 4)
            database.execute("insert into events (at, what) values (?, ?)", row)
        if number == a_day // 3:
            self._install(f".venv/lib/site-packages/package{self._rng.randrange(25)}", 24)
        if number == a_day // 2:
            self._install(f"node_modules/module{self._rng.randrange(40)}", 20)
        if number % max(1, a_day // 4) == 1:
            self._build()
        if number % max(1, a_day // 6) == 2:
            git(self.top, "add", "-A")
            git(self.top, "commit", "-q", "--allow-empty", "-m", f"step {self._step}")
        if number == 0:
            self._write(".env.local", f"API_URL=http://localhost:{3000 + self._step % 100}\n")

    def _write(self, path: str, text: str) -> None:
        place = self.top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(place.name + ".new")
        fresh.write_text(text, encoding="utf-8")
        os.rename(fresh, place)

    def _code(self, seed: int, lines: int) -> str:
        rng = random.Random(seed)
        return "".join(f"def function_{number}(): return {rng.randrange(10**6)}\n" for number in range(lines))

    def _install(self, place: str, files: int) -> None:
        version = self._rng.randrange(10**6)
        shutil.rmtree(self.top / place, ignore_errors=True)
        for number in range(files):
            rng = random.Random(f"{place} {version} {number}")
            lines = "".join(f"value_{line} = {rng.random()}\n" for line in range(rng.randrange(5, 120)))
            self._write(f"{place}/file{number}.py", f"# {version}\n{lines}")

    def _build(self) -> None:
        for number in range(20):
            self._write(
                f"dist/chunk{number}.js",
                f"// build {self._step}\n" + self._code(number + self._step // 10, 150),
            )


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--days", type=int, default=250)
    words.add_argument("--a-day", type=int, default=50)
    words.add_argument("--at", type=Path, help="keep the repositories in this directory, and continue there")
    asked = words.parse_args()
    with _place(asked.at) as base, sealed(base / "home"):
        print("| " + " | ".join(HEADINGS) + " |")
        print("| " + " | ".join("---:" for _ in HEADINGS) + " |", flush=True)
        for row in live(base, asked.days, asked.a_day):
            print("| " + " | ".join(row) + " |", flush=True)
    return 0


@contextmanager
def _place(at: Path | None) -> Iterator[Path]:
    if at is not None:
        at.mkdir(parents=True, exist_ok=True)
        yield at
        return
    with tempfile.TemporaryDirectory(prefix="year-") as base:
        yield Path(base)


def live(base: Path, days: int, a_day: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table."""
    lives = Life(base / "with"), Life(base / "without")
    first = _go_on(base, lives)
    for day in range(first, days + 1):
        measured = day in POINTS or day == days
        times, history = _live_a_day(lives, day, a_day, undisturbed=measured)
        grow_older(lives[0].top / ".git", DAY)
        _tell(base, day, times)
        if measured:
            yield (str(day), f"{day * a_day:,}", *_measure(base, history, times))
        _keep(base, day + 1, lives)


def _live_a_day(
    lives: tuple[Life, Life], day: int, a_day: int, *, undisturbed: bool
) -> tuple[list[float], EnvHistory]:
    """Return the duration of each capture of a day while the daily run works, and the history afterwards."""
    times = []
    by_itself = 0
    for number in range(a_day):
        if by_itself and number == a_day - 1:
            # A real day is longer, so captures merge their packs again when the daily run is over.
            _, status = os.waitpid(by_itself, 0)
            assert status == 0, "the daily run failed"
        for life in lives:
            life.step(a_day)
        history = _open(lives[0].top, BEGIN + timedelta(days=day, minutes=number * 480 / a_day))
        with _first(undisturbed):
            begun = time.monotonic()
            history.capture(f"day {day}, step {number}")
            times.append(time.monotonic() - begun)
        by_itself = by_itself or _begin_upkeep(history)
    return times, history


def _begin_upkeep(history: EnvHistory) -> int:
    """Start the daily run in another process, concurrent with the captures of the day."""
    # The daily run gives up if captures are too frequent, and here a day's captures take seconds; so prune first.
    history.thin()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        do_daily_gc(history.repository, lambda: None)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


@contextmanager
def _first(undisturbed: bool) -> Iterator[None]:
    """Use the highest priority on this machine, if allowed."""
    if not undisturbed or not FIRST:
        yield
        return
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _tell(base: Path, day: int, times: list[float]) -> None:
    packs = _packs(base / "with")
    with open(base / "days", "a", encoding="utf-8") as file:
        file.write(
            f"{datetime.now(UTC):%H:%M:%S} day {day}: {len(times)} captures, {statistics.median(times) * 1000:.0f} ms"
            f" (slowest {max(times) * 1000:.0f}), {len(packs)} packs,"
            f" {sum(path.stat().st_size for path in packs) / 1e6:.1f} MB\n"
        )


def _keep(base: Path, day: int, lives: tuple[Life, Life]) -> None:
    fresh = base / "state.new"
    fresh.write_text(json.dumps([day, *(life.state for life in lives)]))
    os.rename(fresh, base / "state")


def _go_on(base: Path, lives: tuple[Life, Life]) -> int:
    """Return the day to begin with."""
    if not (base / "state").exists():
        return 1
    day, *told = json.loads((base / "state").read_text())
    for life, where in zip(lives, told, strict=True):
        life.restore_state(where)
    return int(day)


def _open(top: Path, at: datetime) -> EnvHistory:
    os.environ["GIT_COMMITTER_DATE"] = at.isoformat()
    return EnvHistory.open(str(top), workers="here", one_command=True)


def _measure(base: Path, history: EnvHistory, times: list[float]) -> tuple[str, ...]:
    top = base / "with"
    packs = _packs(top)
    kept = len(git(top, "rev-list", "--first-parent", f"refs/envhist/heads/{history.timeline}").split())
    in_trash = git(top, "for-each-ref", "--format=%(refname)", "refs/envhist/trash").split()
    refs = len(git(top, "for-each-ref", "refs/envhist", "refs/notes/envhist").splitlines())
    moments = kept + (int(git(top, "rev-list", "--count", *in_trash)) if in_trash else 0)
    here = sum(path.stat().st_size for path in top.rglob("*") if path.is_file() and ".git" not in path.parts)
    program = [
        sys.executable,
        "-c",
        "import sys; from git_envhist.cli import main; sys.argv[0] = 'x'; main.",
    ]
    return (
        f"{kept:,} + {moments - kept:,}",
        str(len(packs)),
        str(refs),
        f"{sum(path.stat().st_size for path in packs) / 1e6:.1f} MB",
        f"{here / 1e6:.1f} MB",
        f"{statistics.median(times) * 1000:.0f} ms",
        _ours(top, program, "envlog()", "-n20"),
        _ours(top, program, "envdiff()", "@~1..@"),
        _ours(top, program, "envrestore()", "--to", str(base / "restored"), "@~5"),
        *(_beside(base, *words) for words in _users_commands()),
        f"{_gc(base) / moments * 1000:.2f} ms",
    )


def _packs(top: Path) -> list[Path]:
    return [path for path in (top / ".git/objects/pack").glob("*.pack") if path.with_suffix(".keep").exists()]


def _users_commands() -> Iterator[tuple[str, ...]]:
    yield "status", "--porcelain"
    yield "log", "-50", "--format=%s"
    yield "commit", "-q", "--allow-empty", "-m", "measured"
    yield "fetch", "-q"


def _ours(top: Path, program: list[str], verb: str, *words: str) -> str:
    taken = []
    for _ in range(5):
        shutil.rmtree(top.parent / "restored", ignore_errors=True)
        begun = time.monotonic()
        subprocess.run(
            [*FIRST, *program[:2], program[2] + verb, *words], cwd=top, check=True, capture_output=True
        )
        taken.append(time.monotonic() - begun)
    return f"{statistics.median(taken) * 1000:.0f} ms"


def _beside(base: Path, *words: str) -> str:
    """Return how much longer a git command takes with a history: the ratio of medians, measured in turns."""
    times: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(TURNS):
        for name, taken in times.items():
            taken.append(_worked(base / name, *words))
    for name in times:
        before = git(base / name, "rev-list", "-1", "--grep=measured", "--invert-grep", "HEAD")
        git(base / name, "reset", "-q", "--soft", before)
    return f"{statistics.median(times['with']) / statistics.median(times['without']):.2f}"


def _worked(top: Path, *words: str) -> float:
    """Return the CPU seconds of a git command."""
    with open(os.devnull, "wb") as nothing:
        child = subprocess.Popen([*FIRST, "git", *words], cwd=top, stdout=nothing)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, words
    return used.ru_utime + used.ru_stime


def _gc(base: Path) -> float:
    """Return how many CPU seconds `git gc` takes more, on copies that were cleaned once."""
    taken: dict[str, float] = {}
    for name in ("without", "with"):
        place = base / "copy"
        shutil.copytree(base / name / ".git", place / ".git")
        git(place, "gc", "-q")
        taken[name] = statistics.median(_worked(place, "gc", "-q") for _ in range(3))
        shutil.rmtree(place)
    return taken["with"] - taken["without"]


if __name__ == "__main__":
    sys.exit(main())
