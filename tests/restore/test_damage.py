"""Damaged objects: unreadable contents of the target or the safety snapshot are reported by path."""

from __future__ import annotations

import os
import random
import re
import shutil
from pathlib import Path

import pytest

from tests.crash.restorecut import left_behind
from tests.end_to_end.captures import capture
from tests.support.oracle import listing
from tests.support.repository import Repo
from tests.support.template import start_from

PACK_END = 20


def flip_a_bit(repo: Repo, oid: str) -> None:
    """Flip a bit in the middle of a packed object."""
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
    pytest.fail("the object is in no pack")


@pytest.fixture
def two(repo: Repo) -> tuple[str, str]:
    """Return the ids of two snapshots; the working tree is as in the second."""
    return start_from(repo, take_two_snapshots)


def take_two_snapshots(repo: Repo) -> tuple[str, str]:
    for number in range(6):
        repo.write(f"d/f{number}", os.urandom(900))
    repo.write("big", os.urandom(9 << 20))
    first = capture(repo, "first")
    for number in range(6):
        repo.write(f"d/f{number}", os.urandom(900))
    repo.write("big", b"small")
    return first, capture(repo, "second")


def test_unreadable_paths_of_a_snapshot_are_named_and_the_others_can_be_restored(
    repo: Repo, two: tuple[str, str]
) -> None:
    first, _ = two
    flip_a_bit(repo, repo.git("rev-parse", f"{first}:d/f1"))
    flip_a_bit(repo, repo.git("rev-parse", f"{first}:d/f4"))
    before = listing(repo.path, top=True)
    inodes = {path: os.stat(repo.path / "d" / path).st_ino for path in os.listdir(repo.path / "d")}
    done = repo.run("envrestore", first)
    assert done.status == 128
    assert "cannot be read: 'd/f1', 'd/f4'\nhint: 'git envlog fsck --repair' repairs what it can" in done.err
    assert listing(repo.path, top=True) == before
    assert inodes == {path: os.stat(repo.path / "d" / path).st_ino for path in os.listdir(repo.path / "d")}
    assert left_behind(repo) == []
    repo.run("envrestore", first, "--", ".", ":!d/f1", ":!d/f4", check=True)
    assert repo.read("big") != b"small"


def test_damaged_chunk_is_reported_by_its_file(repo: Repo, two: tuple[str, str]) -> None:
    first, _ = two
    tree = re.findall("tree (.*)", repo.git("show", f"{first}:big"))[0]
    run = repo.git("ls-tree", tree).split()[2]
    flip_a_bit(repo, repo.git("ls-tree", run).split()[2])
    before = listing(repo.path, top=True)
    done = repo.run("envrestore", first)
    assert done.status == 128
    assert "cannot be read: 'big'" in done.err
    assert listing(repo.path, top=True) == before


def test_file_is_not_replaced_when_its_saved_contents_are_unreadable(
    repo: Repo, two: tuple[str, str]
) -> None:
    first, second = two
    flip_a_bit(repo, repo.git("rev-parse", f"{second}:d/f2"))
    before = listing(repo.path, top=True)
    done = repo.run("envrestore", first)
    assert done.status == 128
    assert "bytes just saved cannot be read: 'd/f2'" in done.err
    assert "nothing was changed" in done.err
    assert listing(repo.path, top=True) == before


@pytest.mark.parametrize("damaged", ["some/deep", "some", ".envhist/manifest"])
def test_unreadable_tree_is_reported_by_its_directory(repo: Repo, damaged: str) -> None:
    repo.write("some/deep/file", "1")
    moment = capture(repo)
    repo.write("some/deep/file", "2")
    flip_a_bit(repo, repo.git("rev-parse", f"{moment}:{damaged}"))
    before = listing(repo.path)
    done = repo.run("envrestore", moment)
    assert (done.status, f"'{damaged}'" in done.err) == (128, True), done.err
    assert listing(repo.path) == before


def index_of_most(repo: Repo) -> Path:
    return max(repo.path.glob(".git/objects/pack/*.idx"), key=lambda path: path.stat().st_size)


def lead_astray(index: Path, chance: random.Random) -> None:
    """Make an index name another object's offset, as a few flipped bits can."""
    data = bytearray(index.read_bytes())
    count = int.from_bytes(data[8 + 1020 : 8 + 1024], "big")
    places = 8 + 1024 + 24 * count
    for _ in range(40):
        wanted, other = (places + 4 * number for number in chance.sample(range(count), 2))
        data[wanted : wanted + 4] = data[other : other + 4]
    index.chmod(0o600)
    index.write_bytes(data)


def flip_somewhere(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(3):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.chmod(0o600)
    path.write_bytes(data)


def test_snapshot_with_damaged_packs_is_written_correctly_or_not_at_all(repo: Repo, tmp_path: Path) -> None:
    """Contents are checked by the pack's checksum; any packed byte, id or offset may be changed on disk."""
    chance = random.Random(38)
    for number in range(700):
        repo.write(f"d{number % 9}/f{number}", b"%d said so\n" % number * chance.randrange(1, 90))
    moment = capture(repo)
    wanted = listing(repo.path)
    for directory in repo.path.glob("d*"):
        shutil.rmtree(directory)
    index = index_of_most(repo)
    whole = {path: path.read_bytes() for path in (index, index.with_suffix(".pack"))}
    statuses = set()
    for turn in range(12):
        if turn % 3 == 0:
            lead_astray(index, chance)
        else:
            flip_somewhere(index if turn % 3 == 1 else index.with_suffix(".pack"), chance)
        place = tmp_path / f"there-{turn}"
        done = repo.run("envrestore", moment, "--to", str(place))
        statuses.add(done.status)
        if done.status == 0:
            assert listing(place) == wanted
        else:
            # Status 4: the snapshot's own commit was damaged.
            assert (done.status in (4, 128), place.exists()) == (True, False), done.err
            assert "unexpected" not in done.err
        for path, data in whole.items():
            path.chmod(0o600)
            path.write_bytes(data)
    assert 128 in statuses
    repo.run("envrestore", moment, "--to", str(tmp_path / "whole"), check=True)
