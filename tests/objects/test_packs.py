"""Packs, judged by git and dulwich: both read them, and every error while writing is detected."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dulwich.object_format import get_object_format
from dulwich.objects import RawObjectID
from dulwich.pack import Pack
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.errors import Damaged, StorageFull
from git_envhist.objects import deflate
from git_envhist.objects import pack_writer as packs_module
from git_envhist.objects.pack_index import PackIndex, encode_index
from git_envhist.objects.pack_writer import PackWriter
from tests.objects.packing import (
    CONTENTS,
    FORMATS,
    add_commit,
    empty_repo,
    flip,
    noise,
    object_id,
    pack_of,
    put_into,
    read_back,
)

both_formats = pytest.mark.parametrize("object_format", FORMATS)


@both_formats
@settings(max_examples=15)
@given(blobs=st.lists(CONTENTS, min_size=1, max_size=12))
def test_git_reads_every_object_that_was_added(
    object_format: str, blobs: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("packs")
    repo = empty_repo(place / "repo", object_format)
    pack = pack_of(place / "staged", blobs, object_format)
    path = put_into(repo, pack)
    wanted = {object_id(b"blob", blob, object_format): (b"blob", blob) for blob in blobs}
    assert pack.objects == len(wanted)
    assert pack.size == path.stat().st_size
    assert read_back(repo, list(wanted)) == wanted
    listed = repo.git("verify-pack", "-v", str(path))
    assert listed.count(" blob ") == len(wanted)
    repo.git("fsck", "--strict", "--no-dangling")


@both_formats
@settings(max_examples=15)
@given(blobs=st.lists(CONTENTS, min_size=1, max_size=12))
def test_pack_index_equals_the_one_git_writes(
    object_format: str, blobs: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("packs")
    repo = empty_repo(place / "repo", object_format)
    pack = pack_of(place / "staged", blobs, object_format)
    ours, theirs = Path(pack.index_path).read_bytes(), place / "theirs.idx"
    repo.git("index-pack", "--strict", f"--object-format={object_format}", "-o", str(theirs), pack.pack_path)
    assert ours == theirs.read_bytes()
    repo.git("index-pack", "--strict", "--stdin", input=Path(pack.pack_path).read_bytes())


@both_formats
def test_dulwich_reads_the_added_objects(object_format: str, tmp_path: Path) -> None:
    blobs = [noise(size, size) for size in (0, 15, 16, 5000)]
    pack = pack_of(tmp_path, blobs, object_format)
    with Pack(pack.pack_path.removesuffix(".pack"), object_format=get_object_format(object_format)) as theirs:
        theirs.check()
        for blob in blobs:
            code, data = theirs.get_raw(RawObjectID(object_id(b"blob", blob, object_format)))
            assert (code, b"".join([data] if isinstance(data, bytes) else data)) == (3, blob)


@both_formats
def test_pack_contains_commits_trees_and_blobs(object_format: str, tmp_path: Path) -> None:
    repo = empty_repo(tmp_path / "repo", object_format)
    writer = PackWriter(str(tmp_path), object_format)
    commit = add_commit(writer, {"a": b"one", "b": b"two"})
    pack = writer.finish()
    assert pack is not None
    put_into(repo, pack)
    repo.git("update-ref", "refs/heads/main", commit)
    assert repo.git("show", "main:b") == "two"
    assert repo.git("fsck", "--strict") == ""


def test_an_object_is_stored_once(tmp_path: Path) -> None:
    elsewhere = object_id(b"blob", b"stands elsewhere")
    asked: list[bytes] = []

    def known(oid: bytes) -> bool:
        asked.append(oid)
        return oid == elsewhere

    with PackWriter(str(tmp_path), "sha1", known) as writer:
        first = writer.add(b"blob", b"once")
        assert writer.add(b"blob", b"once") == first
        assert writer.add(b"blob", b"stands elsewhere") == elsewhere
        assert writer.add(b"tree", b"") != writer.add(b"blob", b"")
        assert (writer.count, writer.raw_bytes) == (3, 4)
        assert first in writer
        assert elsewhere not in writer
        # `known` is asked once for each object that is not in the pack.
        assert asked.count(first) == 1


def test_empty_pack_leaves_no_file(tmp_path: Path) -> None:
    everywhere = PackWriter(str(tmp_path), "sha1", lambda oid: True)
    everywhere.add(b"blob", b"known")
    assert everywhere.finish() is None
    assert everywhere.stored_bytes == 0
    rolled_back = PackWriter(str(tmp_path), "sha1")
    start = rolled_back.mark()
    rolled_back.add(b"blob", noise(3 << 20))
    rolled_back.rollback(start)
    assert rolled_back.finish() is None
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=25)
@given(steps=st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 6), max_size=4)), max_size=8))
def test_rollback_removes_only_objects_after_the_mark(
    steps: list[tuple[bool, list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("packs")
    # Some blobs exceed the buffer several times, so that marks are before and after the flushed part.
    blobs = [noise(size, size) for size in (0, 10, 1000, 70_000, 900_000, 1_100_000, 2_500_000)]
    writer = PackWriter(str(place), "sha1")
    kept: dict[bytes, bytes] = {}
    for forget, numbers in steps:
        mark, before = writer.mark(), dict(kept)
        for number in numbers:
            kept[writer.add(b"blob", blobs[number])] = blobs[number]
        if forget:
            writer.rollback(mark)
            kept = before
        assert (writer.count, writer.raw_bytes) == (len(kept), sum(map(len, kept.values())))
        assert all((object_id(b"blob", blob) in writer) == (blob in kept.values()) for blob in blobs)
    pack = writer.finish()
    if pack is None:
        assert not kept
        return
    repo = empty_repo(place / "repo")
    path = put_into(repo, pack)
    assert repo.git("verify-pack", "-v", str(path)).count(" blob ") == len(kept)
    assert read_back(repo, list(kept)) == {oid: (b"blob", data) for oid, data in kept.items()}


def test_equal_packs_get_different_names(tmp_path: Path) -> None:
    one, other = pack_of(tmp_path, [b"same"]), pack_of(tmp_path, [b"same"])
    assert one.name != other.name
    assert Path(one.pack_path).read_bytes() == Path(other.pack_path).read_bytes()


def test_finished_files_are_read_only(tmp_path: Path) -> None:
    pack = pack_of(tmp_path, [b"bytes"])
    for path in (pack.pack_path, pack.index_path):
        assert os.stat(path).st_mode & 0o777 == 0o400
    assert len(list(tmp_path.iterdir())) == 2


def test_abort_leaves_no_file(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path), "sha1")
    writer.add(b"blob", noise(3 << 20))
    writer.add(b"blob", b"the next")
    assert len(list(tmp_path.iterdir())) == 1
    writer.abort()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("at", [5, 11, 12, 14, 1_500_000, -1])
def test_bit_error_on_the_disk_is_detected(at: int, tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path), "sha1")
    for seed in range(4):
        writer.add(b"blob", noise(1_200_000, seed))
    writer.add(b"blob", b"the last one")
    flip_at_finish(writer, at)
    with pytest.raises(Damaged, match="does not contain what was written"):
        writer.finish()
    assert list(tmp_path.iterdir()) == []


def flip_at_finish(writer: PackWriter, at: int) -> None:
    """Change the file between its last write and the second read."""
    read_again = writer._read_again

    def flipped(header: bytes) -> bytes:
        (path,) = Path(writer.directory).iterdir()
        content = bytearray(path.read_bytes())
        flip(content, at)
        path.write_bytes(content)
        return read_again(header)

    writer._read_again = flipped  # type: ignore[method-assign]


def test_pack_truncated_before_finish_is_detected(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path), "sha1")
    writer.add(b"blob", noise(3 << 20))
    writer.add(b"blob", b"the last one")
    (path,) = tmp_path.iterdir()
    os.truncate(path, 1 << 20)
    with pytest.raises(Damaged):
        writer.finish()


def test_bytes_changed_between_hash_and_deflate_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = deflate.deflate_object
    monkeypatch.setattr(packs_module, "deflate_object", lambda data, level: pack(b"J" + data[1:], level))
    for data in (b"Hello", b"Hello" * 1000, noise(100_000)):
        with PackWriter(str(tmp_path), "sha1") as writer, pytest.raises(Damaged, match="changed in memory"):
            writer.add(b"blob", data)


def test_zlib_is_used_when_isal_cannot_be_imported(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "sys.modules['isal'] = None\n"
        "sys.modules['isal.isal_zlib'] = None\n"
        "from git_envhist.objects import deflate, pack_writer\n"
        "assert deflate.compress.__module__ == 'zlib'\n"
        "writer = pack_writer.PackWriter(sys.argv[1], 'sha1')\n"
        "writer.add(b'blob', b'hello' * 1000)\n"
        "print(writer.finish().pack_path)\n"
    )
    checkout = Path(__file__).parents[2]
    run = [sys.executable, "-W", "error", "-c", script, str(tmp_path)]
    path = subprocess.run(run, capture_output=True, check=True, cwd=checkout, text=True).stdout.strip()
    repo = empty_repo(tmp_path / "repo")
    assert " blob " in repo.git("verify-pack", "-v", path)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_file_size_limit_counts_as_full_disk_and_leaves_no_file(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path), "sha1")
    writer.add(b"blob", noise(3 << 20))
    with files_of_at_most(1 << 20):
        with pytest.raises(StorageFull) as caught:
            writer.add(b"blob", b"the next")
        assert [path.stat().st_size for path in tmp_path.iterdir()] == [0]
        with pytest.raises(StorageFull):
            writer.finish()
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_rest_of_pack_is_stored_after_rollback_on_a_full_disk(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path), "sha1")
    first = writer.add(b"blob", b"first")
    mark = writer.mark()
    with files_of_at_most(1 << 20):
        writer.add(b"blob", noise(3 << 20))
        with pytest.raises(StorageFull):
            writer.add(b"blob", b"the next")
        writer.rollback(mark)
        second = writer.add(b"blob", b"second")
        staged = writer.finish()
    assert staged is not None
    listed = empty_repo(tmp_path / "repo").git("verify-pack", "-v", staged.pack_path)
    assert {line.split()[0] for line in listed.splitlines() if " blob " in line} == {
        first.hex(),
        second.hex(),
    }


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a tiny file system cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("room", [0, 1, 40, 150])
def test_full_disk_is_reported_and_leaves_no_file(room: int, tiny_disk: Path) -> None:
    """The disk fills up in the pack, in its trailer or in its index, depending on `room` (KiB)."""
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes((256 - room) << 10))
    writer = PackWriter(str(tiny_disk), "sha1")
    for seed in range(4000):  # less than the buffer
        writer.add(b"blob", noise(20, seed))
    with pytest.raises(StorageFull) as caught:
        writer.finish()
    assert "no space left on device" in str(caught.value)
    assert list(tiny_disk.iterdir()) == [ballast]


@pytest.mark.parametrize("reason", [errno.EIO, errno.EDQUOT])
def test_failed_fsync_fails_the_pack(reason: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(reason, os.strerror(reason))

    writer = PackWriter(str(tmp_path), "sha1")
    writer.add(b"blob", b"bytes")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Exception, match="cannot write below") as caught:
        writer.finish()
    assert isinstance(caught.value, StorageFull) == (reason == errno.EDQUOT)
    assert list(tmp_path.iterdir()) == []


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:70_001], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 50_001), at))
    pack = pack_of(tmp_path / "staged", [noise(3 << 20), b"small"])
    monkeypatch.undo()
    repo = empty_repo(tmp_path / "repo")
    assert repo.git("verify-pack", "-v", str(put_into(repo, pack))).count(" blob ") == 2


def test_offsets_above_two_gigabytes_are_in_the_second_table(tmp_path: Path) -> None:
    """An option of git starts that table at any offset, so that a small pack has one."""
    repo = empty_repo(tmp_path / "repo")
    writer = PackWriter(str(tmp_path), "sha1")
    for seed in range(300):
        writer.add(b"blob", noise(seed, seed))
    numbers, offsets, checksums = dict(writer._numbers), array("Q", writer._offsets), writer._checksums[:]
    pack = writer.finish()
    assert pack is not None
    limit = offsets[150]
    theirs = tmp_path / "theirs.idx"
    repo.git("index-pack", f"--index-version=2,{limit - 1:#x}", "-o", str(theirs), pack.pack_path)
    pack_hash = Path(pack.pack_path).read_bytes()[-20:]
    ours = encode_index(numbers, offsets, checksums, pack_hash, "sha1", large_from=limit)
    assert ours == theirs.read_bytes()


@both_formats
@given(offsets=st.lists(st.integers(12, 1 << 44), min_size=1, max_size=20, unique=True).map(sorted))
def test_arbitrary_offsets_are_read_back(
    object_format: str, offsets: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("idx") / "large.idx"
    ids = [object_id(b"blob", b"%d" % offset, object_format) for offset in offsets]
    numbers = {oid: number for number, oid in enumerate(ids)}
    length = len(ids[0])
    path.write_bytes(encode_index(numbers, offsets, [0] * len(ids), bytes(length), object_format))
    index = PackIndex(str(path), length)
    found = [index.find(oid) for oid in ids]
    assert [index.offset(number) for number in found if number is not None] == offsets
    assert index.find(bytes(length)) is None
    assert index.find(b"\xff" * length) is None


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_entries_of_a_small_pack_move_into_another(tmp_path: Path, object_format: str) -> None:
    few = PackWriter(str(tmp_path), object_format)
    shared = few.add(b"blob", b"in both")
    alone = few.add(b"tree", b"")
    taken = few.take_out()
    assert taken is not None
    assert few.count == 0
    assert few.finish() is None

    many = PackWriter(str(tmp_path), object_format)
    assert many.add(b"blob", b"in both") == shared
    for oid, entry, checksum in taken:
        many.put(oid, entry, checksum)
    pack = many.finish()

    assert pack is not None
    assert pack.objects == 2
    for name in (shared, alone):
        shown = subprocess.run(
            ["git", "show-index", f"--object-format={object_format}"],
            input=Path(pack.index_path).read_bytes(),
            capture_output=True,
            check=True,
        )
        assert name.hex().encode() in shown.stdout
    subprocess.run(
        ["git", "verify-pack", f"--object-format={object_format}", pack.index_path], check=True, cwd=tmp_path
    )


def test_entry_changed_while_moved_to_another_pack_is_detected(tmp_path: Path) -> None:
    with PackWriter(str(tmp_path), "sha1") as few, PackWriter(str(tmp_path), "sha1") as many:
        few.add(b"blob", b"some bytes")
        (taken,) = few.take_out() or ()
        oid, entry, checksum = taken
        many.put(oid, entry[:-6] + bytes((entry[-6] ^ 4,)) + entry[-5:], checksum)
        with pytest.raises(Damaged, match=oid.hex()):
            many.finish()


def test_entries_on_the_disk_are_not_moved(tmp_path: Path) -> None:
    with PackWriter(str(tmp_path), "sha1") as writer:
        writer.add(b"blob", os.urandom(3 << 20))
        assert writer.take_out() is None
        assert writer.count == 1
