"""Leftovers of a killed restore, and two restores into one directory."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from git_envhist.errors import Refused
from git_envhist.platform import DIRECTORY, core_count
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.plan_steps import PRIVATE
from git_envhist.restore.write_elsewhere import SnapshotSource, fill_directory, private_directory
from tests.restore.engine import Engine
from tests.rules.source import CHECKOUT
from tests.support.privileges import permissions_bind
from tests.support.repository import Repo, make_repo

OURS = os.fsdecode(PRIVATE)


def test_leftovers_of_a_killed_restore_are_removed_by_the_next(repo: Repo, tmp_path: Path) -> None:
    repo.run("envlog", "capture", "x", check=True)
    left = tmp_path / "there" / OURS / "new" / "half"
    left.mkdir(parents=True)
    (left / "file").write_text("half")
    repo.run("envrestore", "@", "--to", str(tmp_path / "there"), check=True)
    assert sorted(os.listdir(tmp_path / "there")) == ["app.py"]


KILLED = """
import os, signal, sys
from git_envhist.cli import main
from git_envhist.restore.disk_calls import DiskCalls
moved, moves = DiskCalls.move, iter(range(99))
def move(*words):
    if next(moves) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    moved(*words)
DiskCalls.move = move
main.run_program("git-envrestore", sys.argv[2:])
"""


@pytest.mark.parametrize("came", [0, 1, 2])
def test_incomplete_restore_killed_at_its_end_is_reported_and_kept(
    repo: Repo, tmp_path: Path, came: int
) -> None:
    for name in ("a/file", "b/file"):
        repo.write(name, name)
    repo.run("envlog", "capture", "x", check=True)
    there = tmp_path / "there"
    words = [sys.executable, "-c", KILLED, str(came), "@", "--to", str(there)]
    assert (
        subprocess.run(words, cwd=repo.path, env={**repo.env, "PYTHONPATH": str(CHECKOUT)}).returncode == -9
    )
    found = [name for name in sorted(os.listdir(there)) if name != OURS]
    assert found == ["a", "app.py", "b"][:came]
    done = repo.run("envrestore", "@", "--to", str(there))
    if came:
        told = f"contains an incomplete restore that was killed: {3 - came} entries are missing"
        assert (done.status, told in done.err) == (3, True), done.err
        assert [name for name in sorted(os.listdir(there)) if name != OURS] == found
    else:
        assert (done.status, sorted(os.listdir(there))) == (0, ["a", "app.py", "b"])


def test_replaced_files_of_a_restore_in_place_are_kept(repo: Repo, tmp_path: Path) -> None:
    repo.run("envlog", "capture", "x", check=True)
    kept = tmp_path / "there" / OURS / "kept" / "1-notes"
    kept.parent.mkdir(parents=True)
    kept.write_text("in no moment")
    assert repo.run("envrestore", "@", "--to", str(tmp_path / "there")).status == 3
    top = os.open(tmp_path / "there", DIRECTORY)
    with pytest.raises(Refused, match="replaced files"), private_directory(top, DiskCalls()):
        pass
    os.close(top)
    assert kept.read_text() == "in no moment"


def test_running_restore_into_the_same_directory_is_not_disturbed(repo: Repo, tmp_path: Path) -> None:
    repo.run("envlog", "capture", "x", check=True)
    there = tmp_path / "there"
    (there / OURS).mkdir(parents=True, mode=0o700)
    held = os.open(there / OURS, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = repo.run("envrestore", "@", "--to", str(there))
        assert (refused.status, "another restore is writing there" in refused.err) == (3, True)
        assert os.path.samestat(os.fstat(held), os.stat(there / OURS))
    finally:
        os.close(held)


class Leaving(DiskCalls):
    """Simulate another restore that removes the directory after we opened it and before we lock it."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self.met = 0

    def fchmod(self, descriptor: int, mode: int) -> None:
        super().fchmod(descriptor, mode)
        if not self.met:
            (self._top / OURS).rmdir()
        self.met += 1


def test_private_directory_is_created_again_when_its_owner_removed_it(tmp_path: Path) -> None:
    calls = Leaving(tmp_path)
    top = os.open(tmp_path, DIRECTORY)
    with private_directory(top, calls) as private:
        assert os.path.samestat(os.fstat(private), os.stat(tmp_path / OURS / "new"))
    os.close(top)
    assert (calls.met, os.listdir(tmp_path)) == (3, [])


class Watched(DiskCalls):
    """Record whether another process could lock the directory when something was removed."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self.free: list[bool] = []

    def rmdir(self, directory: int, name: bytes) -> None:
        if name == PRIVATE:
            other = os.open(self._top / OURS, DIRECTORY)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.free.append(True)
            except BlockingIOError:
                self.free.append(False)
            finally:
                os.close(other)
        super().rmdir(directory, name)


def test_private_directory_is_removed_under_its_lock(tmp_path: Path) -> None:
    calls = Watched(tmp_path)
    top = os.open(tmp_path, DIRECTORY)
    with private_directory(top, calls):
        (tmp_path / OURS / "new" / "file").write_text("half")
    os.close(top)
    assert (calls.free, os.listdir(tmp_path)) == ([False], [])


LEADER = """
import os, signal, sys, time
from git_envhist.workers import share_stream

def do(parent, piece):
    sys.stdin.buffer.raw.read(1)  # until all was sent
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.001)
    os.write(1, b"%d\\n" % piece)

def pieces():
    yield from range(200)
    os.close(giving)
    time.sleep(3600)

parent = os.getpid()
waiting, giving = os.pipe()
os.dup2(waiting, 0)
share_stream(pieces(), lambda: (os.close(giving), parent)[1], do, lambda tool: None, how="fork")
"""


@pytest.mark.skipif(core_count() < 2, reason="one core has no workers")
def test_workers_of_a_killed_process_start_no_more_work(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LEADER], capture_output=True, check=False)
    # run() returns when the last worker has closed the output.
    assert 0 < len(done.stdout.splitlines()) <= core_count()


@pytest.mark.parametrize("how", ["fork", "here"])
def test_attributes_of_a_read_only_file_are_restored(tmp_path: Path, how: str) -> None:
    make_repo(tmp_path / "repo", commit=False)
    path = tmp_path / "repo" / "closed"
    path.write_text("x")
    try:
        os.setxattr(path, "user.kept", b"1")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    path.chmod(0o444)
    engine = Engine(tmp_path / "repo")
    moment = engine.capture()
    (tmp_path / "there").mkdir()
    source = SnapshotSource(engine.contents(), moment.tree)
    with permissions_bind():
        filled = fill_directory(os.fsencode(tmp_path / "there"), source, engine.contents, how=how)
    assert filled.losses == ()
    assert os.getxattr(tmp_path / "there" / "closed", "user.kept") == b"1"
