"""A damaged store: what is to come, or was saved, and cannot be read is told by its paths, and nothing is touched."""

from __future__ import annotations

import os
import re

import pytest

from tests.crash.restorecut import left_behind
from tests.end_to_end.captures import capture
from tests.support.oracle import listing
from tests.support.repository import Repo

PACK_END = 20


def flip_a_bit(repo: Repo, oid: str) -> None:
    """In the middle of an object, wherever it is packed."""
    for index in repo.path.glob(".git/objects/pack/*.idx"):
        listed = repo.git("show-index", input=index.read_bytes()).splitlines()
        offsets = {line.split()[1]: int(line.split()[0]) for line in listed}
        if oid in offsets:
            pack = index.with_suffix(".pack")
            bounds = [*sorted(offsets.values()), pack.stat().st_size - PACK_END]
            at = (offsets[oid] + bounds[bounds.index(offsets[oid]) + 1]) // 2
            pack.chmod(0o600)
            data = bytearray(pack.read_bytes())
            data[at] ^= 0x10
            pack.write_bytes(data)
            return
    pytest.fail("it is in no pack")


@pytest.fixture
def two(repo: Repo) -> tuple[str, str]:
    """Two moments; it stands at the second."""
    for number in range(6):
        repo.write(f"d/f{number}", os.urandom(900))
    repo.write("big", os.urandom(9 << 20))
    first = capture(repo, "first")
    for number in range(6):
        repo.write(f"d/f{number}", os.urandom(900))
    repo.write("big", b"small")
    return first, capture(repo, "second")


def test_what_cannot_be_read_of_the_moment_is_named_and_the_rest_can_be_had(
    repo: Repo, two: tuple[str, str]
) -> None:
    first, _ = two
    flip_a_bit(repo, repo.git("rev-parse", f"{first}:d/f1"))
    flip_a_bit(repo, repo.git("rev-parse", f"{first}:d/f4"))
    before = listing(repo.path, top=True)
    inodes = {path: os.stat(repo.path / "d" / path).st_ino for path in os.listdir(repo.path / "d")}
    done = repo.run("envrestore", first)
    assert done.status == 128
    assert "cannot be read: 'd/f1', 'd/f4'\nhint: leave them out: git envrestore" in done.err
    assert listing(repo.path, top=True) == before
    assert inodes == {path: os.stat(repo.path / "d" / path).st_ino for path in os.listdir(repo.path / "d")}
    assert left_behind(repo) == []
    repo.run("envrestore", first, "--", ".", ":!d/f1", ":!d/f4", check=True)
    assert repo.read("big") != b"small"


def test_a_piece_of_a_big_file_is_told_by_the_file(repo: Repo, two: tuple[str, str]) -> None:
    first, _ = two
    tree = re.findall("tree (.*)", repo.git("show", f"{first}:big"))[0]
    run = repo.git("ls-tree", tree).split()[2]
    flip_a_bit(repo, repo.git("ls-tree", run).split()[2])
    before = listing(repo.path, top=True)
    done = repo.run("envrestore", first)
    assert done.status == 128
    assert "cannot be read: 'big'" in done.err
    assert listing(repo.path, top=True) == before


def test_what_was_saved_and_cannot_be_read_back_is_not_replaced(repo: Repo, two: tuple[str, str]) -> None:
    first, second = two
    flip_a_bit(repo, repo.git("rev-parse", f"{second}:d/f2"))
    before = listing(repo.path, top=True)
    done = repo.run("envrestore", first)
    assert done.status == 128
    assert "bytes just saved cannot be read: 'd/f2'" in done.err
    assert "nothing was changed" in done.err
    assert listing(repo.path, top=True) == before


@pytest.mark.parametrize("damaged", ["some/deep", "some", ".envhist/manifest"])
def test_a_tree_that_cannot_be_read_is_told_by_its_directory(repo: Repo, damaged: str) -> None:
    repo.write("some/deep/file", "1")
    moment = capture(repo)
    repo.write("some/deep/file", "2")
    flip_a_bit(repo, repo.git("rev-parse", f"{moment}:{damaged}"))
    before = listing(repo.path)
    done = repo.run("envrestore", moment)
    assert (done.status, f"'{damaged}'" in done.err) == (128, True), done.err
    assert listing(repo.path) == before
