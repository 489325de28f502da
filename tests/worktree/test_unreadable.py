"""Errors between two stats of a path: it is listed as missing and does not count as removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from git_envhist.model import MissingReason
from git_envhist.worktree.scan import ScanLimits, ScannedDirectory, ScannedEntry, Scanner, open_cursor, walk
from git_envhist.worktree.stat_cache import COLUMNS
from git_envhist.worktree.store_content import _refresh
from tests.crash.faults import needs_strace
from tests.end_to_end.captures import capture
from tests.support.repository import Repo


@needs_strace
def test_directory_is_listed_as_missing_when_the_walk_cannot_list_it(repo: Repo) -> None:
    """The walk fails and the visit succeeds: the directories below were not walked."""
    for name in "abc":
        repo.write(f"top/{name}/file", b"1")
    trace = ("strace", "-f", "-qq", "-o", "/dev/null", "-P", str(repo.path / "top"), "-e", "trace=getdents64",
             "-e", "inject=getdents64:error=EIO:when=1")  # fmt: skip
    done = repo.run("envlog", "capture", "--porcelain", prefix=trace)
    assert done.status == 0, done.err
    assert "not captured (io-error: input/output error): 'top'" in done.err
    whole = capture(repo, "again")
    assert "top/b/file" in repo.git("ls-tree", "-r", "--name-only", whole)
    assert ".envhist/missing" not in repo.git("ls-tree", "-r", "--name-only", whole)


def test_leaf_is_listed_as_missing_when_the_second_look_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name is longer than any file system allows, so lstat does not report a missing path.
    monkeypatch.chdir(tmp_path)
    seen = os.stat(tmp_path)
    visit, leaf = ScannedDirectory(b"", seen), ScannedEntry(b"x" * 300, COLUMNS(seen), True)
    assert not _refresh(visit, leaf)
    assert visit.missing == [
        (leaf.name, MissingReason.IO_ERROR.value, os.strerror(errno.ENAMETOOLONG).lower())
    ]
    visit.missing.clear()
    assert not _refresh(visit, ScannedEntry(b"gone", COLUMNS(seen), True))
    assert visit.missing == []


def test_walk_records_no_error_for_a_removed_directory(tmp_path: Path) -> None:
    unlisted: dict[bytes, int] = {}
    descent = open_cursor({b"": os.fsencode(tmp_path)})
    Scanner(descent, None, ScanLimits(), 0)
    walk(descent, [b"gone"], ScanLimits(), None, unlisted)
    assert unlisted == {}
    walk(descent, [b"x" * 300], ScanLimits(), None, unlisted)
    assert unlisted == {b"x" * 300: errno.ENAMETOOLONG}
