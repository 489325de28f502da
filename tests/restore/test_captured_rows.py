"""Stat data of a capture, used to detect changed files."""

from __future__ import annotations

import os

from git_envhist.api import EnvHistory
from git_envhist.capture.pipeline import CaptureOptions
from git_envhist.model import EnvPath
from git_envhist.restore.planner import CapturedRows
from tests.support.repository import Repo

OLD = 1_000_000_000


def test_each_file_has_the_row_of_its_stat_data(repo: Repo) -> None:
    repo.write("a/b/file", b"1")
    repo.write("top", b"2")
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    history.capture("one")
    os.sync()
    # A file as young as the capture has no row, because its time does not prove that it is unchanged.
    with history.capturing.capture_tree(CaptureOptions()) as held:
        seen = CapturedRows(held.environment.records)
        for path in (b"a/b/file", b"top"):
            found = os.lstat(os.path.join(os.fsencode(repo.path), path))
            expected = (
                found.st_dev,
                found.st_ino,
                found.st_size,
                found.st_mtime_ns,
                found.st_ctime_ns,
            )
            assert seen(b"", EnvPath(path)) in (expected, None)
        assert seen(b"", EnvPath(b"a/b/none")) is None
        assert seen(b"", EnvPath(b"none/at/all")) is None
        assert seen(b"nginx", EnvPath(b"top")) is None


def test_file_as_recent_as_the_capture_has_no_row(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    # A time in the future is newer than any capture.
    repo.write("young", b"1")
    later = os.stat(repo.path / "young").st_mtime_ns + OLD * 3600
    os.utime(repo.path / "young", ns=(later, later))
    with history.capturing.capture_tree(CaptureOptions()) as held:
        assert CapturedRows(held.environment.records)(b"", EnvPath(b"young")) is None
