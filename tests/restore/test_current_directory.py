"""A restore that removes its current directory is recorded."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

HOST = """
import os, sys
from git_envhist import EnvHistory
history = EnvHistory.open(sys.argv[1])
restored = history.restore(sys.argv[2])
assert restored.warnings == () and restored.snapshot.restored_from == sys.argv[2], restored
open(os.path.join(sys.argv[1], "new"), "w").close()
history.capture("later")
history.undo(2)
"""


def capture(repo: Repo, intent: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()


@pytest.fixture
def first(repo: Repo) -> str:
    taken = capture(repo, "one")
    repo.write("sub/deep/file", b"1")
    capture(repo, "two")
    return taken


def files(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


@pytest.mark.parametrize("options", [(), ("--json",), ("-q",)])
def test_restore_is_recorded_when_it_removes_the_current_directory(
    repo: Repo, first: str, options: tuple[str, ...]
) -> None:
    before = files(repo)
    done = repo.run("envrestore", *options, first, cwd="sub/deep", check=True)
    assert (done.err, (repo.path / "sub").exists()) == ("", False)
    newest = repo.run("envlog", "--format=%s", "-n", "1", check=True).out
    assert newest.startswith("restore of")
    repo.run("envrestore", "--undo", check=True)
    assert files(repo) == before


def test_undo_is_recorded_when_it_removes_the_current_directory(repo: Repo, first: str) -> None:
    assert first
    before = files(repo)
    done = repo.run("envlog", "undo", cwd="sub/deep", check=True)
    assert done.err == ""
    repo.run("envlog", "redo", check=True)
    assert files(repo) == before


def test_restore_is_recorded_when_it_removes_the_current_directory_of_a_host_program(
    repo: Repo, first: str
) -> None:
    before = files(repo)
    words = [sys.executable, "-c", HOST, str(repo.path), first]
    done = subprocess.run(words, cwd=repo.path / "sub/deep", env=repo.env, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert files(repo) == before


def test_daily_upkeep_starts_silently_when_the_current_directory_was_removed(repo: Repo, first: str) -> None:
    for setting, value in (("gc.auto", "6700"), ("maintenance.auto", "true")):
        repo.git("config", setting, value)
    stamp = repo.path / ".git/envhist/upkeep"
    # The restore starts it after it has removed the current directory.
    long_ago = time.time() - 3 * 86_400
    stamp.touch()
    os.utime(stamp, (long_ago, long_ago))
    done = repo.run("envrestore", first, cwd="sub/deep", check=True)
    assert done.err == ""
    assert "still runs" not in done.out


@pytest.mark.parametrize("name", ["data.db", "data.sqlite", "data.sqlite3"])
@pytest.mark.parametrize("is_called_inside", [False, True])
def test_directory_named_like_a_database_is_removed_after_it_changed(
    repo: Repo, name: str, is_called_inside: bool
) -> None:
    first, before = capture(repo, "one"), files(repo)
    repo.write(f"{name}/inner/file", b"1")
    capture(repo, "two")
    repo.write(f"{name}/other", b"1")
    repo.run("envrestore", first, cwd=f"{name}/inner" if is_called_inside else None, check=True)
    assert files(repo) == before
