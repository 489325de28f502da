"""Times outside the range of 64 bits of nanoseconds (before 1677, after 2262) are stored, compared and restored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

BILLION = 10**9
LAST = 2**63 - 1
TIMES = (
    LAST,
    LAST + 1,
    LAST + BILLION,
    -LAST - 1,
    -LAST - 2,
    -20_000_000_000 * BILLION + 123_456_789,
    200_000_000_000 * BILLION + 123_456_789,
    -1,
    -BILLION - 1,
    0,
)
NAMES = tuple(f"file{number}" for number in range(len(TIMES)))


def set_time(path: Path, time: int) -> None:
    os.utime(path, ns=(0, time), follow_symlinks=False)
    if path.lstat().st_mtime_ns != time:
        pytest.skip("the file system cannot store this time")


def now(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


def capture(repo: Repo, intent: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()


def build(repo: Repo) -> None:
    for name, time in zip(NAMES, TIMES, strict=True):
        for path in (name, f"dir-{name}/inner", f"link-{name}"):
            place = repo.path / path
            if path.startswith("link"):
                place.symlink_to("nowhere")
            else:
                repo.write(path, name)
        for path in (name, f"link-{name}", f"dir-{name}/inner", f"dir-{name}"):
            set_time(repo.path / path, time)


def test_far_times_are_captured_and_restored(repo: Repo) -> None:
    empty = capture(repo, "empty")
    build(repo)
    first, then = capture(repo, "one"), now(repo)
    repo.run("envrestore", empty, check=True)
    assert set(os.listdir(repo.path)) == {".git", "app.py"}
    repo.run("envrestore", "--undo", check=True)
    assert now(repo) == then
    there = repo.path.parent / "there"
    repo.run("envrestore", "--to", str(there), first, check=True)
    copied = listing(there)
    assert {path: entry for path, entry in then.items() if path} == copied


@pytest.mark.parametrize("time", TIMES)
def test_file_with_a_far_time_is_replaced_adjusted_and_removed(repo: Repo, time: int) -> None:
    for name in ("replaced", "adjusted", "dir/removed"):
        repo.write(name, "1")
    for name in ("replaced", "adjusted", "dir/removed", "dir"):
        set_time(repo.path / name, time)
    first, then = capture(repo, "one"), now(repo)
    repo.write("replaced", "2")
    (repo.path / "adjusted").touch()
    (repo.path / "dir/removed").unlink()
    (repo.path / "dir").rmdir()
    capture(repo, "two")
    repo.run("envrestore", first, check=True)
    assert now(repo) == then
    repo.run("envrestore", "--undo", check=True)
    repo.run("envrestore", "--redo", check=True)
    assert now(repo) == then


@pytest.mark.parametrize("time", TIMES)
def test_change_of_a_neighbour_keeps_a_far_time(repo: Repo, time: int) -> None:
    for number in range(20):
        repo.write(f"dir/file{number:02}", "1")
    set_time(repo.path / "dir/file07", time)
    capture(repo, "one")
    repo.write("dir/file03", "22")
    set_time(repo.path / "dir/file11", time)
    second, then = capture(repo, "two"), now(repo)
    for number in range(20):
        (repo.path / f"dir/file{number:02}").unlink()
    repo.run("envrestore", second, check=True)
    assert now(repo) == then


def test_unchanged_far_times_are_not_reported_as_a_change(repo: Repo) -> None:
    build(repo)
    capture(repo, "one")
    assert repo.run("envdiff", "@", check=True).out == ""
    output = repo.run("envlog", "capture", "--if-changed", "two", check=True).out
    assert "nothing" in output
    assert repo.run("envlog", "fsck", check=True).err == ""
