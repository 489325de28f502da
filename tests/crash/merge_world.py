"""A merge and a revert with every unit: lines, variables, settings, rows, a package, two versions beside each other."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

MERGE, REVERT = "merge", "revert"
VERBS = (MERGE, REVERT)
LINES = b"".join(b"%d\n" % number for number in range(1, 31))
SITE = "env/lib/python3.12/site-packages"
SCHEMA = "create table person (id integer primary key, name text); create table log (text)"


@dataclass(frozen=True)
class World:
    """An environment, a command that merges or reverts, and the files before and after it."""

    repo: Repo
    words: tuple[str, ...]
    before: Listing
    after: Listing
    """Without times: a merged file has the time at which it is written."""

    def list_files(self) -> Listing:
        return listing(self.repo.path, top=True)

    def state(self) -> str | None:
        """Return the name of the state of the files: `before`, `after`, or None for any other."""
        found = self.list_files()
        if found == self.before:
            return "before"
        return "after" if without_times(found) == self.after else None


def without_times(files: Listing) -> Listing:
    """Return a listing without times and without the names that are one file."""
    return {path: replace(one, mtime_ns=0, linked=()) for path, one in files.items()}


def make_world(repo: Repo, verb: str) -> World:
    """Write and capture the environment; it is in the state before the command."""
    start(repo)
    capture(repo, "start")
    if verb == MERGE:
        repo.run("envlog", "fork", "../two", check=True)
        other = Repo(repo.path.parent / "two", repo.env)
        change_there(other)
        capture(other, "there")
        words = ("envlog", "merge", "--both", timeline(other))
    else:
        change_there(repo)
        capture(repo, "there")
        words = ("envlog", "revert", "--both", ":/there")
    change_here(repo)
    capture(repo, "here")
    before = listing(repo.path, top=True)
    repo.run(*words, check=True)
    after = without_times(listing(repo.path, top=True))
    repo.run("envlog", "undo", check=True)
    assert listing(repo.path, top=True) == before
    # Each unit is merged, and both versions of one file are there.
    assert {b"ours/new", b"binary"} < after.keys()
    assert any(path.startswith(b"binary.") for path in after)
    return World(repo, words, before, after)


def capture(repo: Repo, words: str) -> None:
    repo.run("envlog", "capture", words, check=True)


def timeline(repo: Repo) -> str:
    newest = json.loads(repo.run("envlog", "--json", "-1", check=True).out)[0]
    return str(newest["timeline"])


def start(repo: Repo) -> None:
    repo.git("config", "envhist.workers", "2")
    repo.write("lines", LINES)
    repo.write(".env", b"API_KEY=1\nOTHER=1\nTHIRD=1\n", mode=0o600)
    repo.write("settings.json", json.dumps({"one": 1, "two": 2, "three": 3}, indent=2) + "\n")
    repo.write("binary", b"\0start")
    repo.write("dir/file", b"file", mode=0o644)
    repo.write("old/deep/file", b"old")
    repo.write("turns", b"a file")
    (repo.path / "link").symlink_to("lines")
    install(repo, "tool", "1.0")
    with closing(sqlite3.connect(repo.path / "data.db")) as made:
        made.executescript(SCHEMA)
        made.executemany("insert into person values (?, ?)", [(row, f"p{row}") for row in range(1, 30)])
        made.commit()


def install(repo: Repo, name: str, version: str) -> None:
    info = f"{SITE}/{name}-{version}.dist-info"
    repo.write(f"{SITE}/{name}/__init__.py", f"version = '{version}'\n")
    repo.write(f"env/bin/{name}", f"#!python\n{version}\n", mode=0o755)
    repo.write(f"{info}/METADATA", f"Name: {name}\nVersion: {version}\n")
    rows = (f"{name}/__init__.py", f"../../../bin/{name}", f"{name}-{version}.dist-info/METADATA")
    repo.write(f"{info}/RECORD", "".join(f"{row},,\n" for row in rows))


def remove(place: Path) -> None:
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    place.rmdir() if place.is_dir() else place.unlink()


def rows(repo: Repo, *statements: str) -> None:
    with closing(sqlite3.connect(repo.path / "data.db")) as opened:
        for statement in statements:
            opened.execute(statement)
        opened.commit()


def change_there(repo: Repo) -> None:
    repo.write("lines", LINES.replace(b"\n3\n", b"\nthree\n"))
    repo.write(".env", b"API_KEY=1\nOTHER=there\nTHIRD=1\n", mode=0o600)
    repo.write("settings.json", json.dumps({"one": 1, "two": "there", "three": 3}, indent=2) + "\n")
    repo.write("binary", b"\0there")
    (repo.path / "dir/file").chmod(0o600)
    remove(repo.path / "old")
    remove(repo.path / "turns")
    repo.write("turns/into", b"a directory")
    repo.write("page/index.html", b"<p>")
    (repo.path / "link").unlink()
    (repo.path / "link").symlink_to("page")
    remove(repo.path / SITE / "tool-1.0.dist-info")
    install(repo, "tool", "2.0")
    rows(repo, "update person set name = 'there' where id = 2", "insert into person values (50, 'new')")


def change_here(repo: Repo) -> None:
    repo.write("lines", repo.read("lines").replace(b"\n25\n", b"\ntwenty-five\n"))
    repo.write(".env", repo.read(".env").replace(b"API_KEY=1", b"API_KEY=here"), mode=0o600)
    repo.write("settings.json", repo.read("settings.json").replace(b'"one": 1', b'"one": "here"'))
    repo.write("binary", b"\0here")
    repo.write("dir/file", b"edited", mode=(repo.path / "dir/file").stat().st_mode & 0o777)
    repo.write("ours/new", b"ours")
    install(repo, "other", "1.0")
    rows(repo, "update person set name = 'here' where id = 10", "delete from person where id = 20")
