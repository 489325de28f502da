"""Unchanged files of a fork share blocks with the original where the file system can, and nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.git.process import Git
from git_envhist.model import Entry, EntryKind, EnvPath, ObjectId
from git_envhist.objects.object_readers import Verify
from git_envhist.objects.trees import object_id
from git_envhist.restore.worktree_reader import CloningReader
from tests.support.needs import require
from tests.support.oracle import tree_differences
from tests.support.repository import Repo, make_repo

UNCHANGED, CHANGED, POSED = (bytes([letter]) * 300_000 for letter in b"ucp")


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a directory on XFS; skip if none is available."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    for program in ("mkfs.xfs", "filefrag"):
        require(program)
    above = tmp_path_factory.mktemp("xfs")
    with open(above / "image", "wb") as image:
        image.truncate(320 << 20)
    place = above / "mounted"
    place.mkdir()
    for words in (["mkfs.xfs", "-q", above / "image"], ["mount", "-o", "loop", above / "image", place]):
        done = subprocess.run(words, capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot be mounted here: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def is_shared(path: Path) -> bool:
    """Return whether the file system reports shared blocks of two files."""
    output = subprocess.run(["filefrag", "-v", path], capture_output=True, check=True).stdout
    return b"shared" in output


def test_unchanged_files_share_blocks_and_nothing_else(sharing: Path) -> None:
    repo = make_repo(sharing / "repo")
    for name, data in (("unchanged", UNCHANGED), ("changed", CHANGED), ("posed", POSED)):
        repo.write(name, data)
    repo.write("big", os.urandom(9 << 20))
    repo.run("envlog", "capture", "start", check=True)
    seen = (repo.path / "posed").stat()
    repo.write("changed", b"other")
    # Another file with the time and size of the captured one.
    repo.write("posed", b"x" * len(POSED))
    os.utime(repo.path / "posed", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    for name in ("one", "two"):
        repo.run("envlog", "fork", f"../{name}", check=True)
    one, two = sharing / "one", sharing / "two"
    assert tree_differences(one, two) == ()
    shared = {name: is_shared(one / name) for name in ("unchanged", "big", "changed", "posed")}
    assert shared == {"unchanged": True, "big": True, "changed": False, "posed": False}
    assert [(one / name).read_bytes() for name in ("changed", "posed")] == [CHANGED, POSED]
    assert (one / "unchanged").stat().st_nlink == 1
    with open(one / "unchanged", "r+b") as file:
        file.write(b"edited")
    assert (two / "unchanged").read_bytes() == repo.read("unchanged") == UNCHANGED


def test_big_file_has_the_captured_contents_when_another_has_its_time_and_size(repo: Repo) -> None:
    size = 9 << 20
    for name in ("same", "posed"):
        repo.write(name, os.urandom(size))
    with open(repo.path / "sparse", "wb") as file:
        file.write(b"first")
        file.seek(size)
        file.write(b"last")
    repo.run("envlog", "capture", "start", check=True)
    kept = {name: repo.read(name) for name in ("same", "posed", "sparse")}
    seen = (repo.path / "posed").stat()
    repo.write("posed", os.urandom(size))
    os.utime(repo.path / "posed", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    repo.run("envlog", "fork", "../made", check=True)
    made = Repo(repo.path.parent / "made", repo.env)
    assert {name: made.read(name) for name in kept} == kept
    assert (made.path / "sparse").stat().st_blocks * 512 < size


def test_file_that_changes_while_it_is_cloned_is_not_used(repo: Repo) -> None:
    place = repo.write("file", UNCHANGED)
    oid = object_id(b"blob", UNCHANGED, "sha1")
    entry = Entry(EnvPath(b"file"), EntryKind.FILE, 0o644, place.stat().st_mtime_ns, ObjectId(oid))
    contents = CloningReader(
        Git(str(repo.path / ".git"), str(repo.path)),
        str(repo.path / ".git/objects/pack"),
        "sha1",
        verify=Verify.ID,
    )
    contents.use_directory(str(repo.path))

    def cloned(_: int, share: bool) -> bool:
        return True

    def cloned_while_somebody_writes(_: int, share: bool) -> bool:
        place.write_bytes(UNCHANGED)
        return True

    try:
        assert contents.lend(entry, cloned)
        assert not contents.lend(entry, cloned_while_somebody_writes)
        place.unlink()
        place.symlink_to("/etc/hostname")
        assert not contents.lend(entry, cloned)
    finally:
        contents.close()
