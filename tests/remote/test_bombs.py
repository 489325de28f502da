"""Import of decompression bombs: each is refused with one line, within the limits of memory, time and disk space."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest
import zstandard

from git_envhist.git.limits import MEMORY, ResourceLimits, limit_error
from git_envhist.git.process import GitResult
from tests.remote.conftest import refs
from tests.remote.test_export_and_import import commit_of, packed, write_tar
from tests.remote.test_fetch import refs_of_fetched
from tests.support.objects import write_object
from tests.support.repository import Repo, make_repo

COMMIT, TREE, BLOB, DELTA = 1, 2, 3, 7
REF = "refs/envhist/heads/a/b"
VERSION = ("envhist-export", b"envhist-export 1\n")
ZEROS = 200 << 20


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "bomb.envhist.tar.zst")


WEIGHED = """
import os, sys
_, status, used = os.wait4(os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ), 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Print the peak memory of the largest process of a command. The kernel counts the parent's memory at the fork for
the child, so a small program starts the command instead of the test suite."""


def number(value: int) -> bytes:
    """Encode a size as git does: seven bits per byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def entry(kind: int, size: int, deflated: bytes, base: bytes = b"") -> bytes:
    first, rest = size & 15 | kind << 4, size >> 4
    return (bytes([first | 0x80]) + number(rest) if rest else bytes([first])) + base + deflated


def bundle(*entries: bytes, count: int | None = None) -> bytes:
    pack = b"PACK" + struct.pack(">II", 2, len(entries) if count is None else count) + b"".join(entries)
    return f"# v2 git bundle\n{'1' * 40} {REF}\n\n".encode() + pack + sha1(pack).digest()


def delta(base: int, result: int, *copies: bytes) -> bytes:
    return number(base) + number(result) + b"".join(copies)


def delta_of_gigabytes(_bare: Repo) -> bytes:
    """Write a delta that copies a small object thousands of times."""
    base = bytes(1 << 20)
    oid = sha1(b"blob %d\0" % len(base) + base).digest()
    # Copy 1 MiB from the beginning, again and again.
    change = delta(len(base), 16 << 30, *[b"\xc0\x10"] * (16 << 10))
    return bundle(
        entry(BLOB, len(base), zlib.compress(base)), entry(DELTA, len(change), zlib.compress(change), oid)
    )


def growing_deltas(_bare: Repo) -> bytes:
    """Write a chain of deltas, each larger than the one before."""
    data = bytes(1 << 20)
    oid, size, entries = (
        sha1(b"blob %d\0" % len(data) + data).digest(),
        len(data),
        [entry(BLOB, len(data), zlib.compress(data))],
    )
    zeros = sha1()
    for larger in (32, 1024, 1 << 12):
        change = delta(size, larger << 20, *[b"\xc0\x10"] * larger)
        entries.append(entry(DELTA, len(change), zlib.compress(change), oid))
        size, zeros = larger << 20, sha1(b"blob %d\0" % (larger << 20))
        for _ in range(larger if larger < 64 else 0):
            zeros.update(data)
        oid = zeros.digest()
    return bundle(*entries)


def a_tree_of_gigabytes(_bare: Repo) -> bytes:
    return bundle(entry(TREE, 40 << 30, zlib.compress(bytes(1000))))


def many_objects_in_few_bytes(_bare: Repo) -> bytes:
    return bundle(count=4_000_000_000)


def a_large_commit(bare: Repo) -> bytes:
    """Write a commit with a message of spaces: a zero byte would end the message."""
    tree = bare.git("rev-parse", commit_of(bare, b"") + "^{tree}").encode()
    text = b"tree %b\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\n" % tree + b" " * (120 << 20)
    return packed(bare, REF, write_object(bare, "commit", text))


BOMBS: dict[str, tuple[Callable[[Repo], bytes], str]] = {
    "a delta of 16 GB": (delta_of_gigabytes, "takes more memory than the limit"),
    "deltas that grow": (growing_deltas, "takes more memory than the limit"),
    "a tree of 40 GB": (a_tree_of_gigabytes, "takes more memory than the limit"),
    "4,000,000,000 objects": (many_objects_in_few_bytes, "4,000,000,000 objects in"),
    "a commit of 120 MB": (a_large_commit, "contains a commit of"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_import_refuses_bombs_within_its_limits(repo: Repo, tmp_path: Path, file: str, kind: str) -> None:
    make, told = BOMBS[kind]
    write_tar(file, VERSION, ("history.bundle", make(make_repo(tmp_path / "evil.git", bare=True))))
    assert os.path.getsize(file) < 2 << 20
    before = refs(repo)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WEIGHED, "git-envlog", "import", file],
        cwd=repo.path,
        env=repo.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 128, done.stderr
    assert done.stderr.startswith("error: ")
    assert told in done.stderr
    assert int(done.stdout.splitlines()[-1]) * 1024 < 1.2 * MEMORY
    assert refs(repo) == before
    assert refs_of_fetched(repo) == {}
    assert not (repo.path / ".git/envhist/import/work").exists()


def test_process_over_its_time_limit_is_killed_with_an_error() -> None:
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as running:
        bounds = ResourceLimits(MEMORY, 1)
        bounds.apply(running.pid)
        done = GitResult(running.wait(), b"", b"")
    assert "reading the archive takes longer than the limit (1 s)" in str(limit_error(done, bounds, "/", ""))


def head(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("size", [1 << 40, (1 << 63) - 1])
def test_file_that_declares_far_more_than_its_size_is_refused(repo: Repo, file: str, size: int) -> None:
    start = head(*("envhist-export", 17)) + VERSION[1].ljust(512, b"\0") + head("history.bundle", size)
    Path(file).write_bytes(zstandard.ZstdCompressor(level=1).compress(start + bytes(ZEROS)))
    assert os.path.getsize(file) < 1 << 20
    done = repo.run("envlog", "import", file)
    assert done.status == 128
    assert "and declares" in done.err


def test_import_refuses_before_writing_when_the_disk_is_full(repo: Repo, file: str) -> None:
    size = 1 << 46
    start = head("envhist-export", 17) + VERSION[1].ljust(512, b"\0") + head("history.bundle", size)
    start += f"# v2 git bundle\n{'1' * 40} {REF}\n\n".encode()
    with open(file, "wb") as out:
        out.write(zstandard.ZstdCompressor(level=1).compress(start))
        # A sparse file takes no space, but is large enough for the declared size to be plausible.
        out.truncate(size // 90)
    done = repo.run("envlog", "import", file)
    assert done.status == 128
    assert "no space left" in done.err
    assert "make room" in done.err
