"""A deferred large file that cannot be read is listed as missing and does not count as removed."""

from __future__ import annotations

import errno
import os
import random

import pytest

from git_envhist.model import MissingReason
from git_envhist.worktree import store_content
from git_envhist.worktree.read_file import FileVanished, open_with_stat
from tests.capture.helpers import HOWS, take
from tests.end_to_end.captures import assert_holds
from tests.support.repository import Repo


def test_deferred_file_is_listed_as_missing_when_its_read_fails(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("config", "envhist.workers", "2")
    repo.write("large", bytes(2 << 20))
    looks = []
    lstat = os.lstat

    def failing(name: bytes) -> os.stat_result:
        if name == b"large":
            looks.append(name)
            if len(looks) > 1:
                raise OSError(errno.EIO, "broken")
        return lstat(name)

    monkeypatch.setattr(os, "lstat", failing)
    taken = take(repo, "here")

    assert len(looks) > 1
    assert [(one.path, one.why) for one in taken.missing] == [(b"large", MissingReason.IO_ERROR)]


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_deferred_files_that_vanish_have_no_entry(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    repo.git("config", "envhist.workers", "2")
    (repo.path / "flat").mkdir()
    names = [f"flat/{number:03}" for number in range(300)]
    for name in names:
        with open(repo.path / name, "wb") as file:
            file.write(name.encode())
            file.truncate((1 << 20) + 1 if large else 100)

    def vanishing(name: bytes) -> tuple[int, os.stat_result]:
        if name.isdigit() and int(name) % 3:
            raise FileVanished
        return open_with_stat(name)

    monkeypatch.setattr(store_content, "open_with_stat", vanishing)
    taken = take(repo, "here")

    assert taken.missing == ()
    assert taken.snapshot is not None
    listed = repo.git("ls-tree", "--name-only", taken.snapshot.commit, "flat/").split()
    assert listed == names[::3]
    assert repo.git("show", f"{taken.snapshot.commit}:flat/297").rstrip("\0") == "flat/297"


@pytest.mark.parametrize("how", ["here", "fork"])
def test_all_large_files_are_captured_when_there_are_more_than_tickets(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("git_envhist.capture.parallel_scan.LARGE", 100)
    monkeypatch.setattr("git_envhist.capture.parallel_scan.MAX_TICKETS", 3)
    repo.git("config", "envhist.workers", "2")
    for number in range(11):
        repo.write(f"d{number % 4}/large{number}", f"{number}" * 100)
        repo.write(f"d{number % 4}/small{number}", f"{number}")

    taken = take(repo, how)

    assert taken.missing == ()
    assert taken.snapshot is not None
    assert_holds(repo, taken.snapshot.commit)


@pytest.mark.parametrize("how", HOWS)
def test_large_file_with_hard_links_is_stored_once_by_any_number_of_workers(repo: Repo, how: str) -> None:
    repo.git("config", "envhist.workers", "4")
    size = 3 << 20
    for number in range(4):
        (repo.path / f"d{number}").mkdir()
    (repo.path / "d0/large").write_bytes(random.Random(3).randbytes(size))
    for number in range(1, 4):
        os.link(repo.path / "d0/large", repo.path / f"d{number}/other")

    taken = take(repo, how)

    assert taken.missing == ()
    assert taken.snapshot is not None
    packs = (repo.path / ".git/objects/pack").glob("*.pack")
    assert size < sum(pack.stat().st_size for pack in packs) < size + (1 << 18)
    assert_holds(repo, taken.snapshot.commit)
