"""Revert steps of random histories and compare with the same history without them: `python -m tests.restore.replay`.

    python -m tests.restore.replay [histories] [first seed] [--no-packages] [--forks]

A history has 20 steps over files, variables, settings, rows of a database, and packages that the real pip and npm
install. One step or a range is reverted. The result must be what the other steps build, or every difference must be in
a path that the revert names as a conflict. `find`, `sha256sum` and SQLite's own dump judge; git-envhist does not. After
each revert the newest snapshot is restored, and must be there to the byte. With `--forks` the steps, without packages,
are made in two forks, and merging in either direction must give the same tree and name the same conflicts. The test
suite runs a sample.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from git_envhist.api import EnvHistory
from git_envhist.restore.merge_pairs import RevertConflicts
from tests.conftest import sealed_environment
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

STEPS = 20
FILES = ("notes/a", "notes/b", "c")
VARIABLES = (".env", "public.env")
WHEELS = {"six": ("1.15.0", "1.16.0"), "idna": ("3.4", "3.7"), "tabulate": ("0.8.10", "0.9.0")}
"""`tabulate` installs a script."""
NODE = {
    "ms": ("2.0.0", "2.1.3"),
    "once": ("1.3.3", "1.4.0"),
    "mkdirp": ("1.0.4", "2.1.6"),
    "@types/ms": ("0.7.31", "0.7.34"),
}
"""`once` needs another package, `mkdirp` has a command, the last one has a scope."""
SCHEMA = """
create table person (id integer primary key, name text not null, age integer);
create table tag (person integer, word text, primary key (person, word)) without rowid;
create index by_name on person (name);
create trigger noted after insert on person begin update counts set n = n where name = 'x'; end;
create table counts (name text primary key, n integer);
insert into counts values ('x', 1);
"""
CACHES = re.compile(rb"(?:^|/)(?:__pycache__|\.git|\.cache)(?:/|\Z)")
TEXT_ORDER = re.compile(
    rb"(?:^|/)(?:[^/]*\.env|package(?:-lock)?\.json|\.package-lock\.json|settings\.(?:json|toml|yaml))\Z"
)
"""Files whose values count; their order is counted beside."""


class Impossible(Exception):
    """A step cannot be made, because a step that it depends on is missing."""


class Step(NamedTuple):
    """A change that can be made in any copy of the environment."""

    name: str
    make: Callable[[Path], None]


class Tools(NamedTuple):
    """What is needed for packages: a directory of wheels, and environment variables."""

    wheels: Path | None
    environ: dict[str, str]


# The steps.


def start(root: Path, tools: Tools) -> None:
    """Write the environment that all histories begin with."""
    for number, name in enumerate(FILES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("".join(f"{number} {line}\n" for line in range(40)))
    for name in VARIABLES:
        (root / name).write_text("# variables\n" + "".join(f"KEY_{letter}=0\n" for letter in "ABCDEF"))
    values = {f"key{number}": {"one": 0, "two": [0], "three": "x"} for number in range(4)}
    (root / "settings.json").write_text(json.dumps(values, indent=4) + "\n")
    tables = (f"[table{number}]\none = 0 # kept\ntwo = 0\nthree = [0]\n\n" for number in range(3))
    (root / "settings.toml").write_text("".join(tables))
    (root / "settings.yaml").write_text(
        "".join(f"part{number}:\n  one: 0\n  two: 0\n" for number in range(4))
    )
    with closing(sqlite3.connect(root / "data.db")) as made:
        made.executescript(SCHEMA)
        made.executemany(
            "insert into person values (?, ?, 0)", [(number, f"p{number}") for number in range(1, 30)]
        )
        made.commit()
    if tools.wheels is not None:
        run(tools, root, sys.executable, "-m", "venv", "--without-pip", ".venv")
        for site in root.glob(".venv/lib/*/site-packages"):
            # pip removes an empty directory with the last package, which a history without that package does not do.
            (site / "kept.txt").write_text("kept\n")
        (root / "package.json").write_text('{\n  "name": "shop",\n  "version": "1.0.0"\n}\n')


def run(tools: Tools, root: Path, *words: str) -> None:
    done = subprocess.run(
        words, cwd=root, env=tools.environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")


def file_step(choose: random.Random, number: int) -> Step:
    name, line = choose.choice(FILES), choose.randrange(40)
    kind = choose.choice(("line", "line", "line", "new", "mode"))

    def make(root: Path) -> None:
        place = root / name
        if kind == "new":
            (root / f"new-{number}").write_text(f"{number}\n")
        elif kind == "mode":
            place.chmod(0o600 + choose_mode)
        else:
            lines = place.read_text().splitlines(keepends=True)
            lines[line] = f"{line} of {number}\n"
            place.write_text("".join(lines))

    choose_mode = number
    return Step(f"{kind} {name}", make)


def variable_step(choose: random.Random, number: int) -> Step:
    name, key = choose.choice(VARIABLES), "KEY_" + choose.choice("ABCDEF")
    kind = choose.choice(("set", "set", "set", "add", "remove"))
    after = choose.choice("ABCDEF")

    def make(root: Path) -> None:
        place = root / name
        lines = place.read_text().splitlines(keepends=True)
        if kind == "set":
            if not any(line.startswith(key + "=") for line in lines):
                raise Impossible
            lines = [f"{key}={number}\n" if line.startswith(key + "=") else line for line in lines]
        elif kind == "remove":
            lines = [line for line in lines if not line.startswith(key + "=")]
        else:
            at = next((n + 1 for n, line in enumerate(lines) if line.startswith(f"KEY_{after}=")), len(lines))
            lines.insert(at, f"NEW_{number}='{number} # value'\n")
        place.write_text("".join(lines))

    return Step(f"{kind} {key} in {name}", make)


def settings_step(choose: random.Random, number: int) -> Step:
    form = choose.choice(("json", "toml", "yaml"))
    part, key = choose.randrange(3), choose.choice(("one", "two"))
    is_new = choose.random() < 0.3

    def make(root: Path) -> None:
        place = root / f"settings.{form}"
        text = place.read_text()
        if form == "json":
            values = json.loads(text)
            values[f"key{part}"][f"new{number}" if is_new else key] = number
            text = json.dumps(values, indent=4) + "\n"
        else:
            head = f"[table{part}]\n" if form == "toml" else f"part{part}:\n"
            before, _, after = text.partition(head)
            sign, indent = (" = ", "") if form == "toml" else (": ", "  ")
            if is_new:
                after = f"{indent}new{number}{sign}{number}\n" + after
            else:
                after = re.sub(
                    rf"^{indent}{key}{sign}\d+",
                    f"{indent}{key}{sign}{number}",
                    after,
                    count=1,
                    flags=re.MULTILINE,
                )
            text = before + head + after
        place.write_text(text)

    return Step(f"{key} of part {part} in settings.{form}", make)


def row_step(choose: random.Random, number: int) -> Step:
    row, other, word = (
        choose.randrange(1, 15),
        choose.randrange(15, 30),
        f"w{choose.randrange(1, number + 1)}",
    )
    person = choose.randrange(1, 4)
    sql, count = choose.choice(
        (
            (f"update person set age = {number} where id = {row}", 1),
            (f"update person set age = {number}, name = 'q{number}' where id in ({row}, {other})", 2),
            (f"insert into person values ({100 + number}, 'new', {number})", 1),
            (f"delete from person where id = {row}", None),
            (f"insert or replace into tag values ({person}, 'w{number}')", 1),
            # A key, because a condition would also meet rows that the history does not have.
            (f"delete from tag where person = {person} and word = '{word}'", None),
        )
    )

    def make(root: Path) -> None:
        with closing(sqlite3.connect(root / "data.db")) as connection:
            if count not in (None, connection.execute(sql).rowcount):
                raise Impossible
            connection.commit()

    return Step(sql, make)


def pip_step(choose: random.Random, tools: Tools) -> Step:
    name = choose.choice(list(WHEELS))
    version = choose.choice((*WHEELS[name], None))

    def make(root: Path) -> None:
        pip = (sys.executable, "-m", "pip", "--python", str(root / ".venv/bin/python"))
        if version is None:
            run(tools, root, *pip, "uninstall", "-q", "-y", name)
        else:
            options = ("--no-index", "--no-deps", "--no-compile", "--find-links", str(tools.wheels))
            run(tools, root, *pip, "install", "-q", *options, f"{name}=={version}")

    return Step(f"pip {name} {version}", make)


def npm_step(choose: random.Random, tools: Tools) -> Step:
    name = choose.choice(list(NODE))
    version = choose.choice((*NODE[name], None))

    def make(root: Path) -> None:
        options = (
            "--prefer-offline",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--save-exact",
            "--loglevel=error",
        )
        if version is None:
            run(tools, root, "npm", "uninstall", *options, name)
        else:
            run(tools, root, "npm", "install", *options, f"{name}@{version}")

    return Step(f"npm {name} {version}", make)


def random_steps(choose: random.Random, tools: Tools, count: int) -> list[Step]:
    """Return the steps of a history; at least three of them change packages if there are tools for it."""
    kinds: list[Callable[[int], Step]] = [
        lambda number: file_step(choose, number),
        lambda number: variable_step(choose, number),
        lambda number: settings_step(choose, number),
        lambda number: row_step(choose, number),
    ]
    steps = [choose.choice(kinds)(number) for number in range(1, count + 1 + count // 4)]
    if tools.wheels is not None:
        for place in choose.sample(range(count), 4):
            steps[place] = choose.choice((pip_step, npm_step))(choose, tools)
    return steps


# The judge.

Seen = dict[bytes, object]


def observe(root: Path) -> Seen:
    """Return every path as `find` and `sha256sum` see it; a database as SQLite dumps it, some files by value."""
    seen: Seen = {}
    for path, one in listing(root).items():
        if CACHES.search(path):
            continue
        if path == b"data.db":
            with closing(sqlite3.connect(f"file:{root / 'data.db'}?mode=ro", uri=True)) as opened:
                assert opened.execute("pragma integrity_check").fetchone() == ("ok",)
                seen[path] = (
                    one.mode,
                    sorted(line for line in opened.iterdump() if "sqlite_sequence" not in line),
                )
        else:
            seen[path] = (one.kind, one.mode, one.target, one.sha256 if one.kind == "f" else None)
    return seen


def in_value(root: Path, path: bytes) -> object:
    """Return the values of a file whose order is free."""
    text = (root / os.fsdecode(path)).read_text()
    if path.endswith(b".toml"):
        return tomllib.loads(text)
    return json.loads(text) if path.endswith(b".json") else sorted(text.splitlines())


def differing(one: Seen, other: Seen) -> set[bytes]:
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}


def is_below(path: bytes, places: Iterable[bytes]) -> bool:
    return any(path == place or path.startswith(place + b"/") for place in places)


# A history.


class History:
    """A random history, and the places where it is rebuilt."""

    def __init__(self, place: Path, seed: int, tools: Tools, count: int = STEPS) -> None:
        self.tools = tools
        self.place = place
        self.root = place / "env"
        self.choose = random.Random(seed)
        self.repo: Repo = make_repo(self.root, commit=False)
        start(self.root, tools)
        self.history = EnvHistory.open(str(self.root), workers="here", one_command=True)
        self.history.capture("start")
        self.steps: list[Step] = []
        self.seen = [observe(self.root)]
        self.counts: Counter[str] = Counter()
        for step in random_steps(self.choose, tools, count):
            if len(self.steps) < count:
                self.add(step)
        self.ids = {one.intent: one.id for one in self.history.log()}
        self.last = self.history.resolve("@")

    def add(self, step: Step) -> None:
        """Make a step and capture it; one that is impossible or changes nothing is left out."""
        try:
            step.make(self.root)
        except Impossible:
            return
        seen = observe(self.root)
        if differing(seen, self.seen[-1]):
            self.steps.append(step)
            self.seen.append(seen)
            self.history.capture(f"step {len(self.steps)}")

    def rebuild(self, without: range) -> Path | None:
        """Return the environment built without some steps; None if another step cannot be made then."""
        aside, built = self.place / "aside", self.place / "built"
        shutil.rmtree(built, ignore_errors=True)
        os.rename(self.root, aside)
        try:
            # At the same path, because pip writes it into scripts.
            self.root.mkdir()
            (self.root / "app.py").unlink(missing_ok=True)
            for name in self.untouched:
                shutil.copy2(aside / name, self.root / name)
            start(self.root, self.tools)
            for number, step in enumerate(self.steps):
                if number not in without:
                    step.make(self.root)
            os.rename(self.root, built)
            return built
        except (Impossible, FileNotFoundError, sqlite3.Error):
            return None
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
            os.rename(aside, self.root)

    @property
    def untouched(self) -> Sequence[str]:
        """Files that the repository began with."""
        return [name for name in ("app.py", ".gitignore") if (self.root / name).exists()]

    def judge(self, first: int, last: int) -> None:
        """Revert some steps and compare; `first` and `last` count from 0."""
        words = f"{self.id_of(first)}..{self.id_of(last + 1)}"
        removed = range(first, last + 1)
        self.counts["reverts"] += 1
        try:
            self.history.revert(words)
            named: set[bytes] = set()
        except RevertConflicts as refused:
            assert not differing(observe(self.root), self.seen[-1]), "a refused revert changed something"
            named = {one.path for one in refused.conflicts}
            self.counts["with conflicts"] += 1
            self.require_overlap(named, removed)
            try:
                self.history.revert(words, conflict="ours")
            except RevertConflicts as again:
                raise AssertionError(f"--ours leaves conflicts: {again.conflicts}") from again
        built = self.rebuild(removed)
        if built is None:
            assert named, "the steps depend on each other, and nothing is a conflict"
            self.counts["not rebuilt"] += 1
        else:
            self.compare(built, named)
        if self.history.resolve("@").id != self.last.id:
            self.history.restore(self.last)
        assert not differing(observe(self.root), self.seen[-1]), "the newest snapshot did not come back"

    def id_of(self, number: int) -> str:
        names = ["start", *(one for one in self.ids if one and one.startswith("step "))]
        ordered = sorted(names, key=lambda name: int(name.split()[1]) if " " in name else 0)
        return self.ids[ordered[number]]

    def require_overlap(self, named: set[bytes], removed: range) -> None:
        """Each conflict is about a path that the steps changed and a later step, too."""
        step = differing(self.seen[removed.start], self.seen[removed.stop])
        later = differing(self.seen[removed.stop], self.seen[-1])
        for one in named:
            assert any(is_below(path, [one]) or package_of(path) == package_of(one) for path in step), one
            assert any(is_below(path, [one]) or package_of(path) == package_of(one) for path in later), one

    def compare(self, built: Path, named: set[bytes]) -> None:
        different = differing(observe(self.root), observe(built))
        for path in sorted(different):
            here, there = self.root / os.fsdecode(path), built / os.fsdecode(path)
            has_values = TEXT_ORDER.search(path) and here.exists() and there.exists()
            if has_values and in_value(self.root, path) == in_value(built, path):
                self.counts["other order"] += 1
                different.discard(path)
        unnamed = {path for path in different if not is_named(path, named)}
        assert not unnamed, f"differs and is no conflict: {sorted(unnamed)[:5]}; conflicts: {sorted(named)}"
        self.counts["equal but for conflicts" if different else "equal"] += 1


PACKAGE = re.compile(rb"(?:^|.*/)(?:site-packages|node_modules)/((?:@[^/]+/)?[^/]+)")


def package_of(path: bytes) -> bytes:
    """Return the name of the package that a file is of; other paths are themselves."""
    found = PACKAGE.match(path)
    return re.split(rb"-\d", found[1])[0].removesuffix(b".py") if found else path


def is_named(path: bytes, named: Iterable[bytes]) -> bool:
    """Return whether a path is in a conflict, or belongs to its package."""
    named = set(named)
    packages = {package_of(one).rpartition(b"/")[2] for one in named if package_of(one) != one}
    if is_below(path, named) or package_of(path).rpartition(b"/")[2] in packages:
        return True
    return path.rpartition(b"/")[2] in packages and b"bin/" in path


def judge_history(
    place: Path, seed: int, tools: Tools, singles: int, ranges: int, count: int = STEPS
) -> Counter[str]:
    """Judge one history: some single steps and some ranges."""
    one = History(place, seed, tools, count)
    count = len(one.steps)
    for number in one.choose.sample(range(count), min(singles, count)):
        _told(seed, one, number, number)
    for _ in range(ranges):
        first, last = sorted(one.choose.sample(range(count), 2))
        _told(seed, one, first, last)
    one.counts["steps"] += count
    return one.counts


def _told(seed: int, one: History, first: int, last: int) -> None:
    try:
        one.judge(first, last)
    except BaseException:
        names = [step.name for step in one.steps]
        print(f"seed {seed}, steps {first}..{last}, of: {list(enumerate(names))}", flush=True)
        raise


# Two forks.


def judge_forks(place: Path, seed: int, tools: Tools, count: int = STEPS) -> Counter[str]:
    """Make steps in two forks, merge each into the other with the same side preferred, and compare the two trees."""
    choose, counts = random.Random(seed), Counter(pairs=1)
    trees = [place / "env", place / "fork"]
    make_repo(trees[0])
    start(trees[0], tools)
    begun = opened(trees[0])
    begun.capture("start")
    begun.fork("@", str(trees[1]))
    done: list[str] = []
    for step in random_steps(choose, tools, count)[:count]:
        number = choose.randrange(2)
        with suppress(Impossible):
            step.make(trees[number])
            done.append(f"{number}: {step.name}")
            counts["steps"] += 1
    for tree in trees:
        opened(tree).capture("work")
    here, there = (opened(tree).resolve("@").id for tree in trees)
    listed = [
        {(one.path, one.why) for one in opened(tree).merge(other, dry_run=True).conflicts}
        for tree, other in zip(trees, (there, here), strict=True)
    ]
    assert listed[0] == listed[1], f"seed {seed}: {listed}, steps {done}"
    counts["with conflicts"] += bool(listed[0])
    opened(trees[0]).merge(there, conflict="ours")
    opened(trees[1]).merge(here, conflict="theirs")
    seen = [observe(tree) for tree in trees]
    different = differing(*seen) - {b".envhist"}
    for path in sorted(different):
        if TEXT_ORDER.search(path) and in_value(trees[0], path) == in_value(trees[1], path):
            counts["other order"] += 1
            different.discard(path)
    assert not different, f"seed {seed}: the directions differ in {sorted(different)}, steps {done}"
    counts["equal"] += 1
    return counts


def opened(tree: Path) -> EnvHistory:
    return EnvHistory.open(str(tree), workers="here", one_command=True)


def find_tools(place: Path, *, packages: bool) -> Tools:
    """Download the wheels once; without a registry there are no packages."""
    environ = {**os.environ, "npm_config_cache": str(place / "npm"), "npm_config_update_notifier": "false"}
    if not packages or shutil.which("npm") is None:
        return Tools(None, environ)
    wheels = place / "wheels"
    names = [f"{name}=={version}" for name, versions in WHEELS.items() for version in versions]
    for name in names:
        words = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), name)
        if subprocess.run(words, capture_output=True, env=environ).returncode:
            return Tools(None, environ)
    return Tools(wheels, environ)


def main(histories: int, seed: int, *, packages: bool, forks: bool) -> None:
    place = Path(tempfile.mkdtemp(prefix="replay-"))
    (place / "home").mkdir()
    tools = find_tools(place, packages=packages and not forks)
    os.environ.update(sealed_environment(place / "home"))
    total: Counter[str] = Counter()
    failed: list[int] = []
    begun = time.monotonic()
    try:
        for number in range(seed, seed + histories):
            here = place / str(number)
            here.mkdir()
            try:
                if forks:
                    total += judge_forks(here, number, tools)
                else:
                    total += judge_history(
                        here, number, tools, 3 if tools.wheels else 4, 1 if tools.wheels else 2
                    )
            except Exception as error:
                failed.append(number)
                print(f"seed {number} failed: {type(error).__name__}: {error}", flush=True)
            finally:
                shutil.rmtree(here)
            print(f"{number}: {time.monotonic() - begun:.0f} s, {dict(total)}, failed: {failed}", flush=True)
    finally:
        shutil.rmtree(place)
    sys.exit(bool(failed))


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if not word.startswith("-")]
    count, first_seed = numbers + [100, 1][len(numbers) :]
    main(count, first_seed, packages="--no-packages" not in sys.argv, forks="--forks" in sys.argv)
