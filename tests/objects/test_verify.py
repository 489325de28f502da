"""Each reader verifies what its caller names, and nothing less."""

from __future__ import annotations

import os
import shutil
import subprocess
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from git_envhist.errors import Damaged, GitFailed
from git_envhist.git.process import Git
from git_envhist.objects.object_readers import ChunkReader, ObjectReader, PackReader, Verify
from git_envhist.objects.own_packs import OwnPacks
from tests.objects.packing import noise, object_id, pack_of, put_into
from tests.support.repository import Repo


def packs_of(repo: Repo) -> str:
    return str(repo.path / ".git/objects/pack")


@pytest.fixture
def chunks(repo: Repo) -> Iterator[ChunkReader]:
    git = Git(str(repo.path / ".git"), str(repo.path))
    with closing(ChunkReader(git, packs_of(repo), "sha1", verify=Verify.ID)) as found:
        yield found


def store_loose(repo: Repo, data: bytes) -> bytes:
    (repo.path / "loose").write_bytes(data)
    return bytes.fromhex(repo.git("hash-object", "-w", "loose").strip())


def loose_file(repo: Repo, oid: bytes) -> Path:
    return repo.path / ".git/objects" / oid.hex()[:2] / oid.hex()[2:]


def exchanged(repo: Repo, tmp_path: Path) -> tuple[bytes, bytes]:
    """Return the id of a blob in one of our packs, and the blob that the pack has in its place.

    The entry is undamaged and in an index that is whole: only the id reveals the exchange.
    """
    wanted, other = noise(3000, 1), noise(3000, 2)
    path = put_into(repo, pack_of(tmp_path / "one", [wanted]))
    twin = pack_of(tmp_path / "two", [other])
    path.chmod(0o600)
    shutil.copyfile(twin.pack_path, path)
    return object_id(b"blob", wanted), other


def test_pack_reader_returns_another_object_only_for_what_is_displayed(repo: Repo, tmp_path: Path) -> None:
    oid, other = exchanged(repo, tmp_path)
    for verify in Verify:
        with closing(PackReader(OwnPacks.open(packs_of(repo), "sha1"), "sha1", verify=verify)) as found:
            assert found.packed(oid) is None
            if verify is Verify.DEFLATE:
                assert found.read(oid) == (b"blob", other)
                continue
            with pytest.raises(Damaged):
                found.read(oid)


def test_reader_of_a_restore_refuses_to_verify_no_ids(repo: Repo) -> None:
    git = Git(str(repo.path / ".git"), str(repo.path))
    with pytest.raises(ValueError, match="restored"):
        ObjectReader(git, packs_of(repo), "sha1", verify=Verify.DEFLATE)


def test_chunk_in_a_pack_of_git_is_read_in_this_process(repo: Repo, chunks: ChunkReader) -> None:
    oids = {store_loose(repo, data): data for data in (b"", b"one\n", noise(200_000, 3))}
    place = repo.path / ".git/objects/pack/pack"
    subprocess.run(
        ["git", "-C", repo.path, "pack-objects", "-q", place],
        input=b"".join(b"%b\n" % oid.hex().encode("ascii") for oid in oids),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for oid in oids:
        loose_file(repo, oid).unlink()
    assert {oid: chunks.blob(oid) for oid in oids} == oids
    assert "_child" not in chunks.__dict__


def test_loose_chunk_is_read_by_git(repo: Repo, chunks: ChunkReader) -> None:
    oid = store_loose(repo, b"one\n")
    assert chunks.blob(oid) == b"one\n"
    assert "_child" in chunks.__dict__


def test_loose_chunk_that_is_larger_than_it_claims_is_not_inflated(repo: Repo, chunks: ChunkReader) -> None:
    oid = store_loose(repo, b"ten bytes\n")
    loose_file(repo, oid).unlink()
    loose_file(repo, oid).write_bytes(zlib.compress(b"blob 10\0" + bytes(16 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises((Damaged, GitFailed)):
            chunks.blob(oid)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_chunk_with_other_bytes_than_its_id_is_refused(repo: Repo, chunks: ChunkReader) -> None:
    wanted, other = store_loose(repo, noise(900, 1)), store_loose(repo, noise(900, 2))
    os.replace(loose_file(repo, other), loose_file(repo, wanted))
    with pytest.raises((Damaged, GitFailed)):
        chunks.blob(wanted)


def test_chunk_with_other_bytes_in_our_packs_is_refused(
    repo: Repo, tmp_path: Path, chunks: ChunkReader
) -> None:
    oid, _ = exchanged(repo, tmp_path)
    with pytest.raises((Damaged, GitFailed)):
        chunks.blob(oid)


def test_missing_chunk_is_reported(repo: Repo, chunks: ChunkReader) -> None:
    with pytest.raises(Damaged, match="missing"):
        chunks.blob(bytes(20))
