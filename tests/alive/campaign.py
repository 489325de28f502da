"""Captures of changing files: `python -m tests.alive.campaign [--scale F] [kind…]` prints a table.

Every file and database of every snapshot is read back through plain git and checked by its own content or by
SQLite. Errors are printed and make the exit status 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.model import CaptureResult
from tests.alive.selfchecking import is_whole, plant
from tests.alive.sqlite import crash_in_a_transaction, crash_with_a_log, rows_of, whole_rows, writing
from tests.conftest import sealed_environment
from tests.support.oracle import git_fsck, listing
from tests.support.repository import Repo, make_repo
from tests.support.snapshot import contents
from tests.support.talk import Talk, end

OUTSIDE = b"a byte from outside the root"
CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass
class Row:
    """A line of the table."""

    name: str
    captures: int = 0
    met: Counter[str] = field(default_factory=Counter)
    """Events during the captures."""
    judged: int = 0
    flagged: int = 0
    longest: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        met = ", ".join(f"{count:,} {what}" for what, count in self.met.items())
        figures = f"{self.captures:,} | {met} | {self.judged:,} | {self.flagged:,} | {len(self.wrong)}"
        return f"| {self.name} | {figures} | {self.longest:.1f} s |"

    def capture(self, repo: Repo) -> CaptureResult:
        started = time.monotonic()
        taken = EnvHistory.open(str(repo.path), workers="fork", one_command=True).capture(f"{self.captures}")
        self.longest = max(self.longest, time.monotonic() - started)
        self.captures += 1
        assert taken.snapshot is not None
        return taken


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--scale", type=float, default=1.0, help="how much of everything: 0.1 is a tenth")
    words.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; default: all")
    asked = words.parse_args()
    print("| what | captures | met during them | judged | flagged | wrong | longest |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    wrong = []
    for kind in asked.kinds or KINDS:
        with tempfile.TemporaryDirectory(prefix="alive-") as place:
            row = KINDS[kind](sealed_repo(Path(place)), asked.scale)
        print(row, flush=True)
        wrong += [f"{row.name}: {line}" for line in row.wrong]
    print("\n".join(wrong))
    return 1 if wrong else 0


def sealed_repo(place: Path) -> Repo:
    (place / "home").mkdir()
    os.environ.update(sealed_environment(place / "home"))
    repo = make_repo(place / "repo")
    repo.git("config", "envhist.workers", "2")
    return repo


# Files.


def files(repo: Repo, scale: float, pause: float = 0.004) -> Row:
    """5,000 writes in place, truncations and renames."""
    row = Row("files that change")
    repo.git("config", "envhist.bigFile", "1m")
    plant(repo.path / "work", 60, 1)
    with changing(repo.path / "work", pause) as changes:
        while row.met.total() < 5000 * scale or row.captures < 40 * scale:
            changes.drain()
            taken = row.capture(repo)
            row.met.update(changes.drain())
            judge_files(row, repo, taken)
    return finished(row, repo)


def busy_files(repo: Repo, scale: float) -> Row:
    """The same without pauses: almost no file is stable during a read."""
    row = files(repo, scale, 0.0)
    row.name = "files that change without a pause"
    return row


def judge_files(row: Row, repo: Repo, taken: CaptureResult) -> None:
    assert taken.snapshot is not None
    told = {one.path for one in taken.missing}
    row.flagged += len(told)
    for path, data in contents(repo, taken.snapshot.commit).items():
        if path.startswith(b"work/") and path not in told:
            row.judged += 1
            if not is_whole(os.path.basename(path).decode(), data):
                row.wrong.append(f"capture {row.captures}: {path!r} is torn")


class Words:
    """The output of several programs."""

    def __init__(self, children: list[subprocess.Popen[bytes]]) -> None:
        self._talks = [Talk(child) for child in children]

    def drain(self) -> Counter[str]:
        """Return how often each word was printed since the last call."""
        return Counter(line.decode() for talk in self._talks for line in talk.lines())


@contextmanager
def programs(*commands: list[str]) -> Iterator[Words]:
    """Run programs that print their progress until the context ends."""
    with ExitStack() as stack:
        children = []
        for words in commands:
            child = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, cwd=CHECKOUT)
            stack.callback(end, child)
            assert child.stdout is not None
            children.append(child)
            first = child.stdout.readline()
            assert first, "a program did not begin"
        yield Words(children)


@contextmanager
def changing(directory: Path, pause: float, writers: int = 2) -> Iterator[Words]:
    own = ["-m", "tests.alive.selfchecking", str(directory)]
    shares = [[*own, str(number + 1), f"{number}/{writers}", str(pause)] for number in range(writers)]
    with programs(*shares) as words:
        yield words


STORM = """
import os, sys
from tests.alive.selfchecking import content
place, number = sys.argv[1], int(sys.argv[2])
os.makedirs(place, exist_ok=True)
os.chdir(place)
while True:
    for _ in range(100):
        number += 2
        name = f"f{number % 2000}"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(descriptor, content(name, number, 500))
        os.close(descriptor)
        if number % 3:
            os.unlink(name)
    print("hundred files", flush=True)
"""


def storm(repo: Repo, scale: float) -> Row:
    """Create and remove ten thousand files per second."""
    row = Row("a storm of files")
    seconds = 0.0
    work = str(repo.path / "work")
    with programs(["-c", STORM, work, "0"], ["-c", STORM, work, "1"]) as words:
        while row.captures < max(5, 40 * scale):
            words.drain()
            started = time.monotonic()
            taken = row.capture(repo)
            seconds += time.monotonic() - started
            row.met.update(words.drain())
            judge_files(row, repo, taken)
    files_met = 100 * row.met.total()
    row.met = Counter({"files made": files_met, "a second": round(files_met / seconds)})
    return finished(row, repo)


SWAPPER = """
import os, random, sys, time
top, outside = sys.argv[1:3]
while True:
    place = os.path.join(top, f"d{random.randrange(6)}")
    if random.random() < 0.5:
        place = os.path.join(place, f"e{random.randrange(3)}")
    os.rename(place, place + ".away")
    os.symlink(outside, place)
    time.sleep(random.random() * 0.004)
    os.unlink(place)
    os.rename(place + ".away", place)
    print("swaps", flush=True)
    time.sleep(random.random() * 0.004)
"""


def swaps(repo: Repo, scale: float) -> Row:
    """Replace directories by links to others outside that contain the same names."""
    row = Row("directories swapped for links out of the root")
    outside = repo.path.parent / "outside"
    for number in range(6 * 3 * 8):
        name = Path(f"d{number % 6}/e{number // 6 % 3}/f{number // 18}")
        inside = repo.write(f"top/{name}", b"inside %d" % number)
        for place in (outside / name, outside / name.parent.name / name.name, outside / name.name):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(OUTSIDE)
        (outside / "only outside").write_bytes(OUTSIDE)
    top = inside.parents[2]
    with programs(["-c", SWAPPER, str(top), str(outside)]) as words:
        while row.met.total() < 500 * scale:
            # Everything must be scanned and read each time.
            shutil.rmtree(repo.path / ".git/envhist/cache", ignore_errors=True)
            words.drain()
            taken = row.capture(repo)
            row.met.update(words.drain())
            row.flagged += len(taken.missing)
            assert taken.snapshot is not None
            for path, data in contents(repo, taken.snapshot.commit).items():
                row.judged += 1
                if OUTSIDE in data or b"only outside" in path:
                    row.wrong.append(f"capture {row.captures}: {path!r} is not ours")
    everything = repo.run_git("cat-file", "--batch-all-objects", "--batch", "--unordered").stdout
    if OUTSIDE in everything:
        row.wrong.append("the repository has a byte from outside")
    return finished(row, repo)


# Databases.


def live_databases(mode: str) -> Callable[[Repo, float], Row]:
    def captures(repo: Repo, scale: float) -> Row:
        """300 captures of a database under two programs that write as fast as they can."""
        row = Row(f"SQLite, `journal_mode={mode}`, under writers")
        wanted = max(4, int(300 * scale))
        for round_number in range(4):
            remake(repo.path / "data")
            database = repo.path / "data" / f"app{round_number}.db"
            synchronous = ("off", "normal")[round_number % 2]
            with writing(database, mode, writers=1 + round_number // 2, synchronous=synchronous) as progress:
                while row.captures < wanted * (round_number + 1) // 4:
                    before = progress.committed()
                    taken = row.capture(repo)
                    row.met["transactions"] += progress.committed() - before
                    judge_database(row, repo, taken, database.name, before)
        return finished(row, repo)

    return captures


def judge_database(row: Row, repo: Repo, taken: CaptureResult, name: str, committed: int) -> None:
    row.flagged += bool(taken.missing)
    if taken.missing:
        return
    row.judged += 1
    with given_back(repo, taken) as copy:
        try:
            rows = whole_rows(copy / name)
        except Exception as error:
            row.wrong.append(f"capture {row.captures}: {error!r}")
            return
        if max(rows) < committed:
            row.wrong.append(f"capture {row.captures}: has {max(rows)}, and {committed} was committed before")


@contextmanager
def given_back(repo: Repo, taken: CaptureResult) -> Iterator[Path]:
    """Return the directory of a database as read by plain git."""
    assert taken.snapshot is not None
    with tempfile.TemporaryDirectory(prefix="back-") as place:
        for path, data in contents(repo, taken.snapshot.commit).items():
            if path.startswith(b"data/"):
                Path(place, os.fsdecode(path[5:])).write_bytes(data)
        yield Path(place)


def crashed_logs(repo: Repo, scale: float) -> Row:
    """Programs killed while they write into a log."""
    row = Row("SQLite, the log of a killed program")
    chance = random.Random(1)

    def crash(database: Path) -> set[int]:
        return crash_with_a_log(database, chance.randint(1, 400), chance.choice((0, 0, 10, 1000)))

    return crashes(row, repo, max(3, int(100 * scale)), "-wal", crash)


def hot_journals(repo: Repo, scale: float) -> Row:
    """Programs killed in the midst of a transaction that has reached the database."""
    row = Row("SQLite, the hot journal of a killed program")
    chance = random.Random(2)

    def crash(database: Path) -> set[int]:
        return crash_in_a_transaction(database, chance.randint(1, 400), 1000 + chance.randint(200, 1500))

    return crashes(row, repo, max(3, int(100 * scale)), "-journal", crash)


def crashes(row: Row, repo: Repo, wanted: int, sidecar: str, crash: Callable[[Path], set[int]]) -> Row:
    data = repo.path / "data"
    while row.captures < wanted:
        remake(data)
        database = data / f"app.{row.captures}"
        kept = crash(database)
        row.met["kills"] += 1
        row.met["that only the sidecar mends"] += is_wrong_alone(database, kept)
        before = listing(data, top=True)
        taken = row.capture(repo)
        if listing(data, top=True) != before or database.name + sidecar not in os.listdir(data):
            row.wrong.append(f"capture {row.captures}: the user's files are not what they were")
        judge_crashed(row, repo, taken, database.name, kept, exact=sidecar == "-journal")
    return finished(row, repo)


def judge_crashed(
    row: Row, repo: Repo, taken: CaptureResult, name: str, kept: set[int], *, exact: bool
) -> None:
    row.flagged += bool(taken.missing)
    row.judged += 1
    with given_back(repo, taken) as copy:
        try:
            rows = rows_of(copy / name)
        except Exception as error:
            row.wrong.append(f"capture {row.captures}: {error!r}")
            return
        # Between its last word and its death a program may have committed one row more.
        if rows != kept and (exact or not kept < rows or len(rows) > len(kept) + 1):
            row.wrong.append(f"capture {row.captures}: {len(rows)} rows, {len(kept)} were committed")


def is_wrong_alone(database: Path, kept: set[int]) -> bool:
    """Return whether the database without its sidecars has other content."""
    with tempfile.TemporaryDirectory(prefix="alone-") as place:
        try:
            return rows_of(Path(shutil.copy(database, place))) != kept
        except Exception:
            return True


def remake(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()


def finished(row: Row, repo: Repo) -> Row:
    if complaint := git_fsck(repo.path):
        row.wrong.append(complaint)
    return row


KINDS: dict[str, Callable[[Repo, float], Row]] = {
    "files": files,
    "busy": busy_files,
    "storm": storm,
    "swaps": swaps,
    "wal": live_databases("wal"),
    "rollback": live_databases("delete"),
    "logs": crashed_logs,
    "journals": hot_journals,
}


if __name__ == "__main__":
    sys.exit(main())
