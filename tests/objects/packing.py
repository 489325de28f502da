"""Helpers for the tests of packs: objects to store, and git as the judge."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hypothesis import strategies as st

from git_envhist.maintenance.pack_usage import LONG_AGO, read_kinds, write_kinds
from git_envhist.objects.pack_writer import PackWriter, StagedPack
from tests.support.repository import Repo, make_repo

IDENTITY = b"Test User <test@example.com> 1767323045 +0000"
FORMATS = ("sha1", "sha256")


def noise(size: int, seed: int = 0) -> bytes:
    """Return incompressible bytes."""
    return hashlib.shake_128(b"%d" % seed).digest(size)


# Sizes around each length of the entry header, and content that compresses well, badly and not at all.
SIZES = st.sampled_from([0, 1, 15, 16, 17, 2047, 2048, 2049, 65535, 65536, 300_000])
CONTENTS = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda size, seed: (b"%d all work and no play\n" % seed * size)[:size], SIZES, st.integers(0, 9)
    ),
    st.builds(noise, SIZES, st.integers(0, 9)),
)


def object_id(kind: bytes, data: bytes, object_format: str = "sha1") -> bytes:
    return hashlib.new(object_format, b"%b %d\0" % (kind, len(data)) + data).digest()


def pack_of(directory: Path, blobs: Iterable[bytes], object_format: str = "sha1") -> StagedPack:
    """Return a finished pack of blobs."""
    directory.mkdir(parents=True, exist_ok=True)
    writer = PackWriter(str(directory), object_format)
    for blob in blobs:
        writer.add(b"blob", blob)
    pack = writer.finish()
    assert pack is not None
    return pack


def add_commit(writer: PackWriter, files: dict[str, bytes]) -> str:
    """Store a commit with a flat tree and its blobs; return its hash."""
    rows = [(name.encode(), writer.add(b"blob", data)) for name, data in sorted(files.items())]
    tree = writer.add(b"tree", b"".join(b"100644 %b\0%b" % row for row in rows))
    text = b"tree %b\nauthor %b\ncommitter %b\n\nwhat was\n" % (tree.hex().encode(), IDENTITY, IDENTITY)
    return writer.add(b"commit", text).hex()


def put_into(repo: Repo, pack: StagedPack, keep: bytes = b"git-envhist\n") -> Path:
    """Copy a pack into a repository and return the path of its `.pack`."""
    pack_dir = repo.path / ".git/objects/pack"
    (pack_dir / f"{pack.name}.keep").write_bytes(keep)
    os.rename(pack.pack_path, pack_dir / f"{pack.name}.pack")
    os.rename(pack.index_path, pack_dir / f"{pack.name}.idx")
    return pack_dir / f"{pack.name}.pack"


def empty_repo(path: Path, object_format: str = "sha1") -> Repo:
    return make_repo(path, object_format=object_format, commit=False)


def read_back(repo: Repo, ids: Sequence[bytes]) -> dict[bytes, tuple[bytes, bytes]]:
    """Return the output of `git cat-file --batch` for each object."""
    asked = b"".join(oid.hex().encode() + b"\n" for oid in ids)
    answer = repo.run_git("cat-file", "--batch", input=asked).stdout
    found, at = {}, 0
    for oid in ids:
        line = answer[at : answer.index(b"\n", at)]
        name, kind, size = line.split(b" ")
        assert name == oid.hex().encode()
        start = at + len(line) + 1
        found[oid] = (kind, answer[start : start + int(size)])
        at = start + int(size) + 1
    return found


def damage(path: Path | str, change: Callable[[bytearray], object]) -> None:
    """Change bytes of a file in place, also if it is read-only."""
    os.chmod(path, 0o644)
    content = bytearray(Path(path).read_bytes())
    change(content)
    Path(path).write_bytes(content)


def flip(content: bytearray, at: int) -> None:
    content[at] ^= 0x10


def grow_older(git_dir: Path, seconds: float) -> None:
    """Make the packs older, for rules that wait a day or two weeks after their last use."""
    for path in (git_dir / "objects/pack").iterdir():
        seen = path.stat()
        if seen.st_mtime > LONG_AGO:
            os.utime(path, (seen.st_atime - seconds, seen.st_mtime - seconds))
    state = str(git_dir / "envhist")
    told = read_kinds(state)
    for name, said in told.items():
        kind, *used = said.split()
        told[name] = " ".join([kind, *(str(int(float(one) - seconds)) for one in used)])
    write_kinds(state, told)
