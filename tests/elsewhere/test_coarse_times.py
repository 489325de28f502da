"""A file system with a coarse clock and few years: all times that it cannot store are reported as one loss."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.mounts import Room, private_mounts
from tests.support.needs import require
from tests.support.oracle import Listing, listing
from tests.support.repository import Repo
from tests.support.trees import Directory, File, Link, Tree, build

SECOND = 10**9
HELD = 1_500_000_000 * SECOND
FRACTION = HELD + 123_456_789
FAR = 10_000_000_000 * SECOND
TREE: Tree = {
    b"dir": Directory(mtime_ns=FRACTION),
    b"dir/fraction": File(b"1", mtime_ns=FRACTION),
    b"dir/far": File(b"2", mtime_ns=FAR),
    b"dir/held": File(b"3", mtime_ns=HELD),
    b"link": Link(b"a"),
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Room, Path]]:
    """Mount a file system that stores whole seconds from 1901 to 2038."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    make = require("mkfs.ext4")
    image, there = tmp_path / "image", tmp_path / "mounted"
    there.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    with private_mounts() as room:
        room.run(make, "-q", "-I", "128", image)
        room.mount("-o", "loop", image, there)
        yield room, there


def without_times(found: Listing) -> Listing:
    return {path: replace(entry, mtime_ns=0) for path, entry in found.items()}


def losses(out: str) -> list[str]:
    found = [loss["why"] for loss in json.loads(out)["losses"]]
    assert json.loads(out)["kept"] == []
    return found


TOLD = ["the file system cannot store its mtime or those of 4 other paths"]


@pytest.mark.parametrize("words", [("envrestore", "--json", "--to"), ("envlog", "fork", "--json")])
def test_times_that_cannot_be_stored_are_one_loss_of_a_new_directory(
    repo: Repo, place: tuple[Room, Path], words: tuple[str, ...]
) -> None:
    room, there = place
    (repo.path / "app.py").unlink()
    build(TREE, repo.path)
    for path in (repo.path / "link", repo.path):
        os.utime(path, ns=(FRACTION, FRACTION), follow_symlinks=False)
    repo.run("envlog", "capture", "one", check=True)
    wanted = listing(repo.path)
    done = repo.run(*words, str(there / "new"), "@", prefix=room.inside(repo.path), cwd="/")
    assert done.status == 5
    assert losses(done.out) == TOLD
    found = listing(room.seen(there / "new"))
    assert without_times(found) == without_times(wanted)
    assert found[b"dir/held"].mtime_ns == HELD
    assert found[b"dir/fraction"].mtime_ns == HELD


def test_times_that_cannot_be_stored_are_one_loss_of_a_restore(repo: Repo, place: tuple[Room, Path]) -> None:
    room, there = place
    (repo.path / "app.py").unlink()
    empty = repo.run("envlog", "capture", "--porcelain", "empty", check=True).out.strip()
    build(TREE, repo.path)
    for path in (repo.path / "link", repo.path):
        os.utime(path, ns=(FRACTION, FRACTION), follow_symlinks=False)
    full = repo.run("envlog", "capture", "--porcelain", "full", check=True).out.strip()
    wanted = listing(repo.path)
    moved = Repo(there / "repo", repo.env)
    (room.seen(moved.path)).mkdir()
    shutil.copytree(repo.path / ".git", room.seen(moved.path) / ".git")

    def restore(*words: str) -> tuple[int, str]:
        done = moved.run("envrestore", "--json", *words, prefix=room.inside(moved.path), cwd="/")
        return done.status, done.out

    for _ in range(2):
        status, out = restore(full)
        assert (status, losses(out)) == (5, TOLD)
        assert without_times(listing(room.seen(moved.path))) == without_times(wanted)
        then = listing(room.seen(moved.path), top=True)
        assert restore(empty)[0] in (0, 5)
        assert listing(room.seen(moved.path)) == {}
        assert restore("--undo")[0] == 0
        assert listing(room.seen(moved.path), top=True) == then
        assert restore(empty)[0] in (0, 5)
