"""Big files in pieces: put together by plain git they are the file, and a small change costs little."""

from __future__ import annotations

import hashlib
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.store.pieces import (
    LARGEST,
    READ_AHEAD,
    SMALLEST,
    SQLITE_BLOCK,
    SQLITE_MAGIC,
    cut,
    store_pieces,
)
from tests.capture.taking import everything_stored, forget_cache, snapshot, take, tree_of
from tests.end_to_end.captures import assert_holds
from tests.support.oracle import git_fsck, sha256
from tests.support.repository import Repo
from tests.support.snapshot import read_back

MIB = 1 << 20


class Memory:
    """A store that holds what it is given."""

    def __init__(self) -> None:
        self.objects: dict[bytes, bytes] = {}

    def add(self, kind: bytes, data: bytes) -> bytes:
        oid = hashlib.sha1(kind + b"\0" + data).digest()
        self.objects[oid] = data
        return oid


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def in_blocks(data: bytes, sizes: list[int]) -> list[bytes]:
    blocks, at, turn = [], 0, 0
    while at < len(data):
        step = sizes[turn % len(sizes)]
        blocks.append(data[at : at + step])
        at, turn = at + step, turn + 1
    return blocks


SIZES = st.lists(st.sampled_from([1 << 12, 70_001, 1 << 20, 3 << 20, 9 << 20]), min_size=1, max_size=4)
STARTS = (b"", SQLITE_MAGIC, bytes(300_000))


@settings(max_examples=12)
@given(SIZES, st.sampled_from(STARTS), st.integers(0, 20 * MIB))
def test_cuts_do_not_depend_on_how_the_bytes_come(sizes: list[int], start: bytes, length: int) -> None:
    data = start + noise(length)
    whole = list(cut([data]))
    assert b"".join(whole) == data
    assert list(cut(in_blocks(data, sizes))) == whole
    assert all(0 < len(piece) <= LARGEST for piece in whole)
    assert all(len(piece) >= SMALLEST for piece in whole[:-1])


@pytest.mark.parametrize(
    "size", [0, 1, SMALLEST, LARGEST, LARGEST + 1, READ_AHEAD - 1, READ_AHEAD, READ_AHEAD + 1]
)
@pytest.mark.parametrize("start", [b"", SQLITE_MAGIC], ids=["plain", "database"])
def test_sizes_at_the_edges_are_cut_whole(size: int, start: bytes) -> None:
    data = (start + noise(size))[: max(size, len(start))]
    assert b"".join(cut([data])) == data
    store = Memory()
    assert store_pieces(store, [data])[0] == len(data)


@pytest.mark.parametrize("at", [0, 1, 5 * MIB, 10 * MIB - 1])
def test_an_insertion_shares_almost_everything(at: int) -> None:
    data, store = noise(10 * MIB), Memory()
    store_pieces(store, [data])
    known = set(store.objects)
    store_pieces(store, [data[:at] + b"put in" + data[at:]])
    new = sum(len(store.objects[oid]) for oid in store.objects.keys() - known)
    assert new < 4 * LARGEST + 100_000


def test_a_page_of_a_database_shares_all_other_pages() -> None:
    data, store = bytearray(SQLITE_MAGIC + noise(10 * MIB)), Memory()
    store_pieces(store, [bytes(data)])
    known = set(store.objects)
    data[5 * MIB] ^= 1
    store_pieces(store, [bytes(data)])
    blobs = [store.objects[oid] for oid in store.objects.keys() - known]
    assert sum(len(blob) == SQLITE_BLOCK for blob in blobs) == 1
    assert sum(map(len, blobs)) < 100_000


@pytest.mark.slow
def test_a_file_of_150_megabytes_is_put_together_by_plain_git(repo: Repo) -> None:
    repo.write("big", noise(150 * MIB))
    wanted = sha256(repo.path / "big")
    commit = snapshot(repo, "fork").commit
    pointer = dict(line.split(" ") for line in repo.git("show", f"{commit}:big").splitlines())
    assert int(pointer["size"]) == 150 * MIB
    each = "while read -r _ _ blob _; do git cat-file blob $blob; done"
    script = f"git ls-tree -r {pointer['tree']} | {each} | sha256sum"
    assert repo.execute("sh", "-c", script).out.split()[0] == wanted
    sizes = [int(line.split()[3]) for line in repo.git("ls-tree", "-r", "-l", pointer["tree"]).splitlines()]
    assert max(sizes) <= LARGEST
    assert git_fsck(repo.path) == ""


def test_a_file_becomes_big_and_small_again(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    for size in (MIB - 1, MIB, 3 * MIB, 0, 2 * MIB):
        repo.write("dir/grows", noise(size, size))
        repo.write("dir/same", noise(2 * MIB, 7))
        commit = snapshot(repo).commit
        found = assert_holds(repo, commit)
        assert (b"dir/grows" in found.stored) is (size >= MIB)
        assert tree_is_the_same_without_a_cache(repo)
    repo.git("config", "envhist.bigFile", "64m")
    assert read_back(repo, snapshot(repo).commit).stored == {}
    assert git_fsck(repo.path) == ""


def tree_is_the_same_without_a_cache(repo: Repo) -> bool:
    known = tree_of(repo)
    forget_cache(repo)
    return tree_of(repo) == known


def test_pieces_of_unchanged_files_are_still_there_when_others_changed(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    repo.write("dir/first", noise(2 * MIB, 1))
    repo.write("dir/second", noise(2 * MIB, 2))
    repo.write("other/third", noise(2 * MIB, 3))
    time.sleep(0.05)
    take(repo)
    for step in range(3):
        time.sleep(0.05)
        repo.write("dir/second", noise(2 * MIB, 10 + step))
        assert_holds(repo, snapshot(repo).commit)
        assert tree_is_the_same_without_a_cache(repo)
    (repo.path / "dir/first").unlink()
    assert_holds(repo, snapshot(repo).commit)


def test_what_looks_like_a_pointer_is_a_file(repo: Repo) -> None:
    repo.write("fake", b"envhist-pieces 1\nsize 3\ntree " + b"0" * 40 + b"\n")
    found = read_back(repo, snapshot(repo).commit)
    assert found.stored == {}


@pytest.mark.slow
def test_a_sparse_file_takes_the_time_of_its_data(repo: Repo) -> None:
    with open(repo.path / "sparse", "wb") as file:
        file.truncate(8 << 30)
        file.seek(4 << 30)
        file.write(b"in the middle")
    started = time.monotonic()
    taken = take(repo, "fork")
    assert time.monotonic() - started < 120
    assert taken.stored_bytes < 32 * MIB
    assert taken.snapshot is not None
    pointer = repo.git("show", f"{taken.snapshot.commit}:sparse").splitlines()
    assert pointer[1] == f"size {8 << 30}"


def test_a_secret_file_is_sealed_however_big_it_is(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    repo.write("dump/.env", b"PASSWORD=correct-horse\n" * 100_000)
    commit = snapshot(repo).commit
    assert read_back(repo, commit).stored == {b"dump/.env": "sealed"}
    assert b"correct-horse" not in everything_stored(repo)
