"""Sequential reads from git-envhist's packs: each object matches its id, at any position."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from git_envhist.errors import Damaged
from git_envhist.objects import object_readers as windows
from git_envhist.objects.object_readers import PackReader, Verify
from git_envhist.objects.own_packs import OwnPacks
from tests.objects.packing import damage, noise, object_id, pack_of, put_into
from tests.support.repository import Repo

Read = Callable[[PackReader, bytes], tuple[bytes, bytes]]


@pytest.fixture(params=[1 << 17, 1 << 10], ids=["large blocks", "small blocks"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(windows, "BLOCK", request.param)
    monkeypatch.setattr(windows, "OVERLAP", request.param >> 3)
    return int(request.param)


@pytest.fixture(params=[1, 1 << 20], ids=["learned", "looked up"])
def worth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(windows, "LIST_AFTER_READS", request.param)
    return int(request.param)


def blobs() -> Iterator[bytes]:
    """Blobs of sizes around a block, which compress well, badly and not at all."""
    for number, size in enumerate(
        (0, 1, 700, 900, 1000, 1100, 2000, 5000, 120_000, 131_072, 150_000, 700_000)
    ):
        yield b"%d all work and no play\n" % number * (size // 24)
        yield noise(size, number)


def by_checksum(found: PackReader, oid: bytes) -> tuple[bytes, bytes]:
    """Read as for a whole snapshot: by checksum, and by id if that is not possible."""
    data = found.packed(oid)
    return found.read(oid) if data is None else (b"blob", data)


@pytest.fixture(params=[PackReader.read, by_checksum], ids=["by id", "by checksum"])
def read(request: pytest.FixtureRequest) -> Read:
    return request.param  # type: ignore[no-any-return]


def reader(repo: Repo) -> PackReader:
    return PackReader(
        OwnPacks.open(str(repo.path / ".git/objects/pack"), "sha1"), "sha1", verify=Verify.PACKED
    )


def test_pack_reader_reads_every_object(
    repo: Repo, tmp_path: Path, block: int, worth: int, read: Read
) -> None:
    first, second = list(blobs()), [noise(size, 99) for size in range(3, 400)]
    put_into(repo, pack_of(tmp_path / "one", first))
    put_into(repo, pack_of(tmp_path / "two", second))
    asked = [*first, *second] * 2
    random.Random(1).shuffle(asked)
    with closing(reader(repo)) as found:
        for data in asked:
            assert read(found, object_id(b"blob", data)) == (b"blob", data)
        with pytest.raises(KeyError):
            read(found, object_id(b"blob", b"nowhere"))


def test_object_changed_on_the_disk_raises_damaged(
    repo: Repo, tmp_path: Path, block: int, worth: int, read: Read
) -> None:
    data = [noise(3000, number) for number in range(20)]
    path = put_into(repo, pack_of(tmp_path / "one", data))
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\0\0\0\0")
    told = []
    with closing(reader(repo)) as found:
        for one in data:
            try:
                assert read(found, object_id(b"blob", one)) == (b"blob", one)
            except Damaged:
                told.append(one)
    assert len(told) == 1


def test_truncated_pack_raises_damaged(
    repo: Repo, tmp_path: Path, block: int, worth: int, read: Read
) -> None:
    data = [noise(3000, number) for number in range(20)]
    path = put_into(repo, pack_of(tmp_path / "one", data))
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.truncate(30_000)
    told = []
    with closing(reader(repo)) as found:
        for one in data:
            try:
                assert read(found, object_id(b"blob", one)) == (b"blob", one)
            except Damaged:
                told.append(one)
    # Nine are undamaged; `PackFile` raises for all others.
    assert len(told) in (10, 11)


def test_blob_is_verified_by_the_checksum_in_the_index(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blobs that cannot be verified, e.g. the last of a pack, and blobs with another checksum are not returned."""
    monkeypatch.setattr(windows, "LIST_AFTER_READS", 1)
    data = [noise(3000, number) for number in range(20)]
    path = put_into(repo, pack_of(tmp_path / "one", data))
    with closing(reader(repo)) as found:
        told = [found.packed(object_id(b"blob", one)) for one in data]
    assert [one for one in told if one is not None] == data[:-1]
    index = path.with_suffix(".idx")
    index.chmod(0o600)
    with index.open("r+b") as file:
        file.seek(8 + 1024 + 20 * 20)
        file.write(bytes(4 * 20))
    with closing(reader(repo)) as found:
        assert [found.packed(object_id(b"blob", one)) for one in data] == [None] * 20
        assert found.read(object_id(b"blob", data[0])) == (b"blob", data[0])


def test_index_with_wrong_offsets_returns_no_blob_by_checksum(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed bit moves an offset to the second table, which does not exist."""
    monkeypatch.setattr(windows, "LIST_AFTER_READS", 1)
    data = {object_id(b"blob", one): one for one in (noise(3000, number) for number in range(20))}
    path = put_into(repo, pack_of(tmp_path / "one", data.values()))
    ids = sorted(data)
    far = 8 + 1024 + 24 * len(ids) + 4 * 7
    damage(path.with_suffix(".idx"), lambda content: content.__setitem__(far, content[far] | 0x80))
    with closing(reader(repo)) as found:
        assert [found.packed(oid) for oid in ids] == [None] * len(ids)
        assert found.read(ids[3]) == (b"blob", data[ids[3]])
        with pytest.raises(Damaged):
            found.read(ids[7])


@pytest.mark.parametrize("later", [False, True], ids=["to an earlier one", "to a later one"])
def test_index_with_swapped_objects_returns_no_blob_by_checksum(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """The other object is undamaged and has an entry's checksum; only the hash of the index reveals the change."""
    monkeypatch.setattr(windows, "LIST_AFTER_READS", 1)
    data = {object_id(b"blob", one): one for one in (noise(3000, number) for number in range(20))}
    path = put_into(repo, pack_of(tmp_path / "one", data.values()))
    ids = sorted(data)
    wanted, other = (ids[3], ids[11]) if later else (ids[11], ids[3])
    offsets = 8 + 1024 + 24 * len(ids)

    def lead_astray(content: bytearray) -> None:
        def at(oid: bytes) -> slice:
            start = offsets + 4 * ids.index(oid)
            return slice(start, start + 4)

        content[at(wanted)] = content[at(other)]

    damage(path.with_suffix(".idx"), lead_astray)
    with closing(reader(repo)) as found:
        assert [found.packed(oid) for oid in ids] == [None] * len(ids)
        assert found.read(other) == (b"blob", data[other])
        with pytest.raises(Damaged):
            found.read(wanted)


def test_index_of_another_pack_returns_no_blob_by_checksum(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two packs with equal numbers, lengths and offsets, as when an old index is copied back from a backup."""
    monkeypatch.setattr(windows, "LIST_AFTER_READS", 1)
    data = [noise(3000, number) for number in range(20)]
    path = put_into(repo, pack_of(tmp_path / "one", data))
    twin = pack_of(tmp_path / "two", [*data[:-1], noise(3000, 99)])
    path.chmod(0o600)
    path.write_bytes(Path(twin.pack_path).read_bytes())
    with closing(reader(repo)) as found:
        assert [found.packed(object_id(b"blob", one)) for one in data] == [None] * 20
        assert found.read(object_id(b"blob", data[0])) == (b"blob", data[0])


def test_every_bit_error_in_pack_or_index_is_detected(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read returns what was stored, or raises Damaged or KeyError."""
    monkeypatch.setattr(windows, "LIST_AFTER_READS", 1)
    data = {object_id(b"blob", one): one for one in (b"%d all work\n" % n * (n + 1) for n in range(12))}
    path = put_into(repo, pack_of(tmp_path / "one", data.values()))
    for file in (path, path.with_suffix(".idx")):
        whole = file.read_bytes()
        for bit in range(0, 8 * len(whole), 5):
            damage(
                file,
                lambda content, bit=bit: content.__setitem__(bit >> 3, content[bit >> 3] ^ 1 << (bit & 7)),
            )
            with closing(reader(repo)) as found:
                for oid, one in data.items():
                    with suppress(Damaged, KeyError):
                        assert by_checksum(found, oid) == (b"blob", one)
        file.write_bytes(whole)
