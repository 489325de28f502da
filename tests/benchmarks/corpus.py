"""A working environment to measure with: Python and JavaScript packages, tracked sources, one large database.

The full one has about 100,000 files and 2 GB, three quarters of the files at most 3 KiB, and one flat directory with
20,000 files, as environments were found to look. Which files there are is decided first (`plan`), then two processes
write them. The seed decides everything.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.contents import content, pools

SEED = "environment 1"
SITE = ".venv/lib/python3.11/site-packages"
SMALL_FILE = 3072
MARK = "git-envhist-benchmark"
ROW_BYTES = 900


@dataclass(frozen=True)
class Scale:
    """The size of an environment."""

    name: str
    python: int
    node: int
    flat: int
    sources: int
    libraries: int
    database: int
    snapshots: int
    """The length of the timeline that `git envlog` lists."""
    runs: tuple[int, int]
    """The many changed files: the number of runs, and the number of neighbours in each."""


FULL = Scale("full", 36_000, 43_000, 20_000, 500, 120, 200_000_000, 10_000, (20, 50))
MIDDLE = Scale("middle", 7_200, 8_600, 4_000, 200, 30, 40_000_000, 2_000, (8, 20))
SMALL = Scale("small", 700, 750, 400, 50, 4, 12_000_000, 1_000, (4, 10))


class Planned(NamedTuple):
    """A file to be written."""

    path: str
    kind: str
    size: int


@dataclass(frozen=True)
class Shape:
    """The size and shape of the environment, for the line of facts."""

    files: int
    bytes: int
    small_share: float


def plan(scale: Scale) -> list[Planned]:
    """Return every file but the database, in the order of its path."""
    rng = random.Random(f"{SEED} {scale.name}")
    found = {file.path: file for file in _everything(scale, rng)}
    return [found[path] for path in sorted(found)]


def build(top: Path, scale: Scale) -> None:
    """Write the environment, and commit its sources."""
    files = plan(scale)
    pools()
    top.mkdir(parents=True, exist_ok=True)
    for directory in sorted({os.path.dirname(file.path) for file in files}):
        (top / directory).mkdir(parents=True, exist_ok=True)
    chunks = [files[at : at + 500] for at in range(0, len(files), 500)]
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as workers:
        database = workers.submit(write_database, top / "app.sqlite3", scale.database)
        list(workers.map(partial(_write, str(top)), chunks))
        database.result()
    _commit(top)
    (top / ".git" / MARK).write_text(f"{SEED} {scale.name}\n")


def is_built(top: Path, scale: Scale) -> bool:
    """Return whether the environment is completely written."""
    mark = top / ".git" / MARK
    return mark.is_file() and mark.read_text() == f"{SEED} {scale.name}\n"


def shape(top: Path) -> Shape:
    """Return how many files there are, and how large."""
    sizes = [os.lstat(os.path.join(place, name)).st_size for place, name in walk(top)]
    return Shape(len(sizes), sum(sizes), sum(size <= SMALL_FILE for size in sizes) / max(1, len(sizes)))


def walk(top: Path) -> Iterator[tuple[str, str]]:
    """Yield (directory, name) of every file of the environment, in order."""
    for place, directories, names in os.walk(top):
        if place == str(top):
            directories[:] = [name for name in directories if name != ".git"]
            names = [name for name in names if name != ".git"]
        directories.sort()
        for name in sorted(names):
            yield place, name


def write_database(path: Path, size: int) -> None:
    """Write a SQLite database of about this size."""
    rng = random.Random(f"{SEED} database")
    rows = ((number, rng.random(), _body(number, rng)) for number in range(size // (ROW_BYTES + 60)))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma page_size = 4096")
        connection.execute("pragma synchronous = off")
        connection.execute("create table events (id integer primary key, weight real, body text)")
        connection.executemany("insert into events values (?, ?, ?)", rows)
    connection.close()


def _body(number: int, rng: random.Random) -> str:
    half = ROW_BYTES // 2
    start = rng.randrange(len(pools().text) - half)
    return pools().text[start : start + half].decode("latin-1") + f"{number} {rng.randbytes(half // 2).hex()}"


def _write(top: str, files: list[Planned]) -> None:
    for file in files:
        with open(os.path.join(top, file.path), "wb", buffering=0) as out:
            out.write(content(file.kind, file.size, f"{SEED} {file.path}"))


def _commit(top: Path) -> None:
    git = partial(subprocess.run, cwd=top, check=True)
    git(["git", "init", "-q", "--template="])
    git(["git", "add", "src", ".gitignore"])
    git(["git", "commit", "-q", "-m", "the sources"])


def _everything(scale: Scale, rng: random.Random) -> Iterator[Planned]:
    yield Planned(".gitignore", "ignore", 0)
    yield Planned(".env", "text", 400)
    for number in range(scale.sources):
        yield Planned(f"src/part{number // 25:02}/file{number:03}.js", "js", _size(rng))
    for number in range(scale.sources // 8):
        yield Planned(f"build/chunk-{number:03}.js", "js", 10_000 + rng.randrange(200_000))
    yield from _first(scale.python, _python_packages(scale, rng))
    yield from _first(scale.node, _node_packages("node_modules", rng, 0))
    for number in range(scale.flat):
        yield Planned(f"node_modules/@icons/all/icon{number:05}.js", "js", 300 + rng.randrange(1200))
    for number in range(scale.libraries):
        size = int(100_000 * 80 ** rng.random())
        yield Planned(f"{SITE}/native{number % 20:02}/lib{number:03}.cpython-311.so", "so", size)


def _first(count: int, files: Iterator[Planned]) -> Iterator[Planned]:
    for _ in range(count):
        yield next(files)


def _python_packages(scale: Scale, rng: random.Random) -> Iterator[Planned]:
    number = 0
    while True:
        number += 1
        name = f"package{number:03}"
        info = f"{SITE}/{name}-1.{number}.dist-info"
        yield from (
            Planned(f"{info}/{part}", "text", 200 + rng.randrange(2500))
            for part in ("METADATA", "RECORD", "WHEEL")
        )
        for place, module in _spread(f"{SITE}/{name}", rng):
            yield Planned(f"{place}/module{module:03}.py", "py", _size(rng))
            yield Planned(f"{place}/__pycache__/module{module:03}.cpython-311.pyc", "pyc", _size(rng))


def _node_packages(top: str, rng: random.Random, depth: int) -> Iterator[Planned]:
    number = 0
    while not depth or number < 3:
        number += 1
        scope = f"@scope{number % 40:02}/" if number % 5 == 0 else ""
        package = f"{top}/{scope}package{number:04}"
        yield Planned(f"{package}/package.json", "json", 500 + rng.randrange(2000))
        yield Planned(f"{package}/README.md", "text", 300 + rng.randrange(6000))
        # Many packages have exactly the same licence.
        yield Planned(f"{package}/LICENSE", "licence", 1071)
        for place, module in _spread(f"{package}/dist", rng):
            yield from _javascript(f"{place}/module{module:03}", rng)
        if depth < 2 and rng.random() < 0.12:
            yield from _node_packages(f"{package}/node_modules", rng, depth + 1)


def _javascript(stem: str, rng: random.Random) -> Iterator[Planned]:
    yield Planned(f"{stem}.js", "js", _size(rng))
    yield Planned(f"{stem}.d.ts", "dts", 60 + rng.randrange(2500))
    if rng.random() < 0.3:
        yield Planned(f"{stem}.js.map", "map", _size(rng))
    if rng.random() < 0.01:
        yield Planned(f"{stem}.png", "image", _size(rng))


def _spread(top: str, rng: random.Random) -> Iterator[tuple[str, int]]:
    """Yield (directory, number) of the modules of one package: a few for most, hundreds for some."""
    places = [top]
    for number in range(min(600, int(rng.lognormvariate(2.6, 1.2)) + 1)):
        if rng.random() < 0.2:
            below = rng.choice(places)
            places.append(f"{below}/part{len(places):02}" if below.count("/") < 9 else below)
        yield rng.choice(places), number


def _size(rng: random.Random) -> int:
    if rng.random() < 0.59:
        return 40 + int(SMALL_FILE * rng.random() ** 1.6)
    return int(SMALL_FILE * 92 ** rng.random())
