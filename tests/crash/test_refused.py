"""Full or failing disks: status 128, one line and a hint; nothing changed, no leftovers."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.faults import (
    capture_with_fault,
    change,
    debris,
    judge,
    judge_the_next,
    needs_strace,
    prepare,
)
from tests.end_to_end.captures import assert_holds, capture, history
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, make_repo

# While the capture writes its packs, renames them, and while git moves the ref.
FAULTS = {
    "ENOSPC": ("pwrite64", "1+"),
    "EDQUOT": ("pwrite64", "4"),
    "EIO": ("sync", "5"),
    "EROFS": ("rename", "3"),
    "EMFILE": ("pipe2", "3+"),
}


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("error", FAULTS)
def test_failed_write_publishes_nothing_and_prints_one_line(repo: Repo, error: str) -> None:
    call, when = FAULTS[error]
    prepare(repo)
    before = change(repo, error)
    done = capture_with_fault(repo, call, f"error={error}", when)
    assert (done.status, done.out) == (128, ""), done.err
    assert done.err.startswith("error: ")
    assert os.strerror(getattr(errno, error)).lower() in done.err.lower()
    assert len(done.err.splitlines()) <= 2
    assert judge(repo, before, done) == []
    assert history(repo) == before.known
    assert judge_the_next(repo) == []


@needs_strace
@pytest.mark.full
def test_disk_failing_after_the_ref_moved_is_reported_and_publishes_once(repo: Repo) -> None:
    prepare(repo)
    for when in (13, 15, 17):
        before = change(repo, str(when))
        done = capture_with_fault(repo, "sync", "error=EIO", str(when))
        assert judge(repo, before, done) == []
        assert judge_the_next(repo) == []


@needs_strace
def test_unreadable_file_is_the_only_one_missing(repo: Repo) -> None:
    prepare(repo)
    bad = repo.write("d3/bad", b"cannot be read")
    repo.write("d3/good", b"can be read")
    trace = ("strace", "-f", "-qq", "-o", "/dev/null", "-P", str(bad), "-e", "trace=read,pread64,preadv,readv",
             "-e", "inject=read,pread64,preadv,readv:error=EIO")  # fmt: skip
    before = history(repo)
    strict = repo.run("envlog", "capture", "--strict", prefix=trace)
    assert strict.status == 3
    assert "d3/bad" in strict.err
    assert history(repo) == before
    done = repo.run("envlog", "capture", "--porcelain", prefix=trace)
    assert done.status == 0, done.err
    assert "d3/bad" in done.err
    snapshot = done.out.strip()
    assert repo.git("show", f"{snapshot}:d3/good") == "can be read"
    assert "d3/bad" in repo.git("show", f"{snapshot}:.envhist/missing")
    assert "Env-Complete: partial" in repo.git("log", "-1", "--format=%B", snapshot)
    assert repo.git("show", f"{capture(repo)}:d3/bad") == "cannot be read"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 3 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_disk_that_fills_up_is_reported_and_leftovers_are_removed(small_disk: Path) -> None:
    repo = make_repo(small_disk / "repo")
    capture(repo, "first")
    known = history(repo)
    repo.write("data", os.urandom(900_000))
    free = os.statvfs(small_disk)
    repo.write(".git/filler", b"\0" * (free.f_bavail * free.f_frsize - 40_000))
    # Reserved space is not used: the budget is exceeded first, and the file is skipped with a warning.
    partial = repo.run("envlog", "capture", "-m", "second")
    assert partial.status in (0, 128)
    assert "data" in partial.err or "no space left" in partial.err.lower()
    assert partial.status == 0 or "hint: make room there" in partial.err
    assert "Traceback" not in partial.err
    (repo.path / ".git/filler").unlink()
    assert git_fsck(repo.path) == ""
    assert history(repo)[-1:] == known
    assert_holds(repo, capture(repo, "room again"))
    assert debris(repo) == []


def test_full_disk_refuses_the_capture_and_changes_nothing(small_disk: Path) -> None:
    repo = make_repo(small_disk / "repo")
    capture(repo, "first")
    known = history(repo)
    repo.write("new", b"1")
    with open(repo.path / ".git" / "filler", "wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
    done = repo.run("envlog", "capture", "-m", "second")
    assert (done.status, done.out) == (128, "")
    printed = done.err.splitlines()
    assert "no space left on device" in printed[0]
    assert (
        printed[1]
        == "hint: make room there (or raise the quota) and run the command again; nothing was changed"
    )
    assert len(printed) == 2
    assert history(repo) == known
    (repo.path / ".git/filler").unlink()
    assert_holds(repo, capture(repo, "room again"))
    assert debris(repo) == []
    assert git_fsck(repo.path) == ""
