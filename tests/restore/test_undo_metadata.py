"""Undo also restores owners, times and attributes, even if a restore changed nothing else."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

OTHER = 1234
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in (
        (1, 7, 0xFFFFFFFF),
        (2, 6, OTHER),
        (4, 4, 0xFFFFFFFF),
        (0x10, 6, 0xFFFFFFFF),
        (0x20, 4, 0xFFFFFFFF),
    )
)
"""An access control list that gives another user read and write permission, as Linux stores it."""


def change_owner(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change owners")
    os.chown(path, OTHER, OTHER)


def set_attribute(path: Path) -> None:
    try:
        os.setxattr(path, "user.note", b"later")
    except OSError:
        pytest.skip("the file system has no extended attributes")


def set_acl(path: Path) -> None:
    try:
        os.setxattr(path, "system.posix_acl_access", ACL)
    except OSError:
        pytest.skip("the file system has no access control lists")


def set_time(path: Path) -> None:
    os.utime(path, ns=(0, 1_000_000_000_123_456_789))


CHANGES = (change_owner, set_attribute, set_acl, set_time)


def capture(repo: Repo, intent: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()


def now(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


@pytest.mark.parametrize("is_captured", [False, True])
@pytest.mark.parametrize("name", ["dir/file", "dir"])
@pytest.mark.parametrize("change", CHANGES)
def test_undo_returns_metadata_that_a_restore_replaced(
    repo: Repo, change: Callable[[Path], None], name: str, is_captured: bool
) -> None:
    capture(repo, "before the file")
    repo.write("dir/file", b"1")
    first, then = capture(repo, "one"), now(repo)
    change(repo.path / name)
    changed = now(repo)
    if is_captured:
        capture(repo, "changed")
    repo.run("envrestore", first, check=True)
    assert now(repo) == then
    repo.run("envrestore", "--undo", check=True)
    assert now(repo) == changed
    repo.run("envrestore", "--redo", check=True)
    assert now(repo) == then


@pytest.mark.parametrize("change", CHANGES)
def test_undo_returns_the_newest_metadata_of_files_with_changed_contents(
    repo: Repo, change: Callable[[Path], None]
) -> None:
    repo.write("other", b"1")
    first, then = capture(repo, "one"), now(repo)
    repo.write("file", b"1")
    capture(repo, "two")
    change(repo.path / "file")
    changed = now(repo)
    repo.run("envrestore", first, check=True)
    assert now(repo) == then
    repo.run("envrestore", "--undo", check=True)
    assert now(repo) == changed


@pytest.mark.parametrize("change", [change_owner, set_attribute, set_acl])
def test_undo_returns_metadata_that_changed_since_the_last_capture(
    repo: Repo, change: Callable[[Path], None]
) -> None:
    capture(repo, "before the file")
    repo.write("file", b"1")
    capture(repo, "one")
    then = now(repo)
    change(repo.path / "file")
    repo.run("envrestore", "--undo", check=True)
    assert now(repo) == then


def test_undo_skips_captures_between_which_only_times_changed(repo: Repo) -> None:
    capture(repo, "before the file")
    before = now(repo)
    repo.write("file", b"1")
    capture(repo, "one")
    set_time(repo.path / "file")
    capture(repo, "two")
    repo.run("envrestore", "--undo", check=True)
    assert now(repo) == before
