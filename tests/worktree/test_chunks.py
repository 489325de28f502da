"""Big files in chunks: plain git can join them to the file, and a small change adds little."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.model import SQLITE_HEADER, MissingReason
from git_envhist.snapshots.chunks import (
    IN_HOLE,
    MAX_SIZE,
    READ_AHEAD,
    SMALLEST,
    SQLITE_BLOCK,
    _Runs,
    cut_into_chunks,
    store_chunks,
)
from git_envhist.worktree import store_content
from git_envhist.worktree.read_file import BLOCK, open_with_stat
from git_envhist.worktree.store_content import chained_hash
from tests.capture.helpers import everything_stored, forget_cache, snapshot, take, tree_of
from tests.end_to_end.captures import assert_holds
from tests.support.depth import examples
from tests.support.oracle import git_fsck, sha256
from tests.support.repository import Repo
from tests.support.snapshot import read_back

MIB = 1 << 20


class Memory:
    """A store in memory."""

    def __init__(self) -> None:
        self.objects: dict[bytes, bytes] = {}
        self.given: list[bytes] = []
        """Ids of all added objects, with repetitions."""

    def add(self, kind: bytes, data: bytes) -> bytes:
        oid = hashlib.sha1(kind + b"\0" + data).digest()
        self.objects[oid] = data
        self.given.append(oid)
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
STARTS = (b"", SQLITE_HEADER, bytes(300_000))


def cut_all(blocks: Iterable[bytes | int]) -> list[bytes]:
    """Return each chunk."""
    return [piece for piece, times in cut_into_chunks(blocks) for _ in range(times)]


@settings(max_examples=examples(4, 12))
@given(SIZES, st.sampled_from(STARTS), st.integers(0, 20 * MIB))
def test_chunk_boundaries_do_not_depend_on_the_blocks_read(
    sizes: list[int], start: bytes, length: int
) -> None:
    data = start + noise(length)
    whole = cut_all([data])
    assert b"".join(whole) == data
    assert cut_all(in_blocks(data, sizes)) == whole
    assert all(0 < len(piece) <= MAX_SIZE for piece in whole)
    assert all(len(piece) >= SMALLEST for piece in whole[:-1])


@pytest.mark.parametrize(
    "size", [0, 1, SMALLEST, MAX_SIZE, MAX_SIZE + 1, READ_AHEAD - 1, READ_AHEAD, READ_AHEAD + 1]
)
@pytest.mark.parametrize("start", [b"", SQLITE_HEADER], ids=["plain", "database"])
def test_chunks_cover_files_of_limit_sizes(size: int, start: bytes) -> None:
    data = (start + noise(size))[: max(size, len(start))]
    assert b"".join(cut_all([data])) == data
    store = Memory()
    assert store_chunks(store, [data])[0] == len(data)


HOLES = st.one_of(
    st.sampled_from(
        [1, SQLITE_BLOCK, IN_HOLE - 1, IN_HOLE, IN_HOLE + 1, IN_HOLE + MAX_SIZE, 3 * MIB, 300 * MIB]
    ),
    st.integers(1, 4 * MIB),
)
LAYOUTS = st.lists(st.one_of(HOLES, st.integers(1, 2 * MIB).map(noise)), min_size=1, max_size=6)


@settings(max_examples=examples(10, 40), deadline=None)
@given(LAYOUTS, st.sampled_from((b"", SQLITE_HEADER, b"\0")))
def test_hole_is_chunked_like_zero_bytes(layout: list[bytes | int], start: bytes) -> None:
    blocks = [start, *layout] if start else layout
    plain, sparse = Memory(), Memory()
    filled = [bytes(block) if isinstance(block, int) else block for block in blocks]
    assert store_chunks(sparse, blocks) == store_chunks(plain, filled)
    assert sparse.objects == plain.objects
    assert len(sparse.given) <= len(plain.given)


def test_hole_of_terabytes_makes_few_objects() -> None:
    data, store = noise(MIB), Memory()
    size, tree = store_chunks(store, [data, 8 << 40, data])
    assert size == (8 << 40) + 2 * MIB
    assert len(store.given) < 100
    runs = store.objects[tree]
    assert len(runs) < 2 * MIB
    assert len(runs) // 33 * 1024 * MAX_SIZE >= 8 << 40


@pytest.mark.parametrize("first", [0, 1])
def test_chunk_lists_are_equal_for_repeated_and_single_chunks(first: int) -> None:
    """Also true if the id of the repeated chunk ends a run."""
    store = Memory()
    nul = bytes((first,)) + bytes(19)
    for before in (0, 1, 1023, 1024):
        for times in (1, 2, 1023, 1024, 1025, 2048, 5000):
            together, single = _Runs(store), _Runs(store)
            for runs in (together, single):
                runs.add(b"\1" * 20, before)
            together.add(nul, times)
            for _ in range(times):
                single.add(nul, 1)
            assert together.finish() == single.finish()


@pytest.mark.parametrize("at", [0, 1, 5 * MIB, 10 * MIB - 1])
def test_insertion_shares_almost_all_chunks(at: int) -> None:
    data, store = noise(10 * MIB), Memory()
    store_chunks(store, [data])
    known = set(store.objects)
    store_chunks(store, [data[:at] + b"put in" + data[at:]])
    new = sum(len(store.objects[oid]) for oid in store.objects.keys() - known)
    assert new < 4 * MAX_SIZE + 100_000


def test_changed_database_page_shares_all_other_chunks() -> None:
    data, store = bytearray(SQLITE_HEADER + noise(10 * MIB)), Memory()
    store_chunks(store, [bytes(data)])
    known = set(store.objects)
    data[5 * MIB] ^= 1
    store_chunks(store, [bytes(data)])
    blobs = [store.objects[oid] for oid in store.objects.keys() - known]
    assert sum(len(blob) == SQLITE_BLOCK for blob in blobs) == 1
    assert sum(map(len, blobs)) < 100_000


@pytest.mark.full
def test_file_of_150_megabytes_is_reassembled_by_plain_git(repo: Repo) -> None:
    repo.write("big", noise(150 * MIB))
    wanted = sha256(repo.path / "big")
    commit = snapshot(repo, "fork").commit
    pointer = dict(line.split(" ") for line in repo.git("show", f"{commit}:big").splitlines())
    assert int(pointer["size"]) == 150 * MIB
    each = "while read -r _ _ blob _; do git cat-file blob $blob; done"
    script = f"git ls-tree -r {pointer['tree']} | {each} | sha256sum"
    assert repo.execute("sh", "-c", script).out.split()[0] == wanted
    sizes = [int(line.split()[3]) for line in repo.git("ls-tree", "-r", "-l", pointer["tree"]).splitlines()]
    assert max(sizes) <= MAX_SIZE
    assert git_fsck(repo.path) == ""


def test_file_that_becomes_big_and_small_again_is_captured(repo: Repo) -> None:
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


def test_chunks_of_unchanged_files_are_kept_when_others_change(repo: Repo) -> None:
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


def test_file_that_looks_like_a_pointer_is_stored_as_a_file(repo: Repo) -> None:
    repo.write("fake", b"envhist-pieces 1\nsize 3\ntree " + b"0" * 40 + b"\n")
    found = read_back(repo, snapshot(repo).commit)
    assert found.stored == {}


def with_holes(path: Path, size: int, data: dict[int, bytes]) -> None:
    """Write a sparse file."""
    with open(path, "wb") as file:
        try:
            file.truncate(size)
        except OSError:
            pytest.skip("no file can be so large here")
        for at, stretch in data.items():
            file.seek(at)
            file.write(stretch)
        file.flush()
        if path.stat().st_blocks * 512 > size // 2:
            pytest.skip("files have no holes here")


def test_sparse_file_is_reassembled_by_plain_git(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    places = {0: noise(5000), 9 * MIB + 1: noise(3 * MIB), 30 * MIB: noise(700_000), 48 * MIB - 3: b"end"}
    with_holes(repo.path / "sparse", 48 * MIB, places)
    (repo.path / "filled").write_bytes((repo.path / "sparse").read_bytes())
    wanted = sha256(repo.path / "filled")
    commit = snapshot(repo, "fork").commit
    assert repo.git("rev-parse", f"{commit}:sparse") == repo.git("rev-parse", f"{commit}:filled")
    tree = repo.git("show", f"{commit}:sparse").splitlines()[2].removeprefix("tree ")
    each = "while read -r _ _ blob _; do git cat-file blob $blob; done"
    assert repo.execute("sh", "-c", f"git ls-tree -r {tree} | {each} | sha256sum").out.split()[0] == wanted
    assert git_fsck(repo.path) == ""


def test_sparse_file_of_terabytes_is_captured_by_its_data(repo: Repo) -> None:
    with_holes(repo.path / "sparse", 1 << 40, {1 << 39: b"in the middle"})
    taken = take(repo, "fork")
    assert taken.missing == ()
    assert taken.stored_bytes < MIB
    assert taken.snapshot is not None
    pointer = repo.git("show", f"{taken.snapshot.commit}:sparse").splitlines()
    assert pointer[1] == f"size {1 << 40}"
    assert tree_is_the_same_without_a_cache(repo)


def test_secret_file_too_large_to_seal_is_listed_as_missing(repo: Repo) -> None:
    with_holes(repo.path / ".env", 8 << 40, {})
    repo.write("beside", "1")
    taken = take(repo, "fork")
    assert [(one.path, one.why) for one in taken.missing] == [(b".env", MissingReason.BUDGET)]
    assert taken.files == 2


def test_file_that_grew_since_the_scan_is_stored_in_chunks(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    repo.write("dir/grows", b"small")
    real, asked = os.pread, []

    def grown(name: bytes) -> tuple[int, os.stat_result]:
        if name == b"grows":
            repo.write("dir/grows", noise(3 * MIB))
            monkeypatch.setattr(os, "pread", watched)
        return open_with_stat(name)

    def watched(descriptor: int, size: int, at: int) -> bytes:
        asked.append(size)
        return real(descriptor, size, at)

    monkeypatch.setattr(store_content, "open_with_stat", grown)
    commit = snapshot(repo).commit
    monkeypatch.undo()
    assert max(asked) <= MIB
    assert read_back(repo, commit).stored == {b"dir/grows": "pieces"}
    assert_holds(repo, commit)


PARTS = st.lists(
    st.one_of(st.sampled_from([b"\0", b"x", bytes(BLOCK), noise(BLOCK - 1), noise(BLOCK) * 2]), HOLES),
    max_size=6,
)


@settings(max_examples=40)
@given(PARTS)
def test_fingerprint_does_not_depend_on_the_blocks_read(parts: list[bytes | int]) -> None:
    def hashed(blocks: Iterable[bytes | int]) -> bytes:
        return chained_hash(lambda data: hashlib.sha256(data).digest(), blocks)

    whole = b"".join(bytes(part) if isinstance(part, int) else part for part in parts)
    assert hashed(parts) == hashed([whole])
    assert hashed(parts) != hashed([whole + b"\0"])
    assert hashed(parts) != hashed([*parts, BLOCK])


def test_fingerprint_of_a_hole_of_terabytes_is_fast() -> None:
    hashed = []
    chained_hash(lambda data: (hashed.append(len(data)), hashlib.sha256(data).digest())[1], [b"x", 8 << 40])
    assert sum(hashed) < 5 * BLOCK


def test_big_secret_file_is_sealed(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    repo.write("dump/.env", b"PASSWORD=correct-horse\n" * 100_000)
    commit = snapshot(repo).commit
    assert read_back(repo, commit).stored == {b"dump/.env": "sealed"}
    assert b"correct-horse" not in everything_stored(repo)
