"""What an environment can hold, one by one: each comes back as it was, and what cannot is told."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from git_envhist.errors import Refused, StorageFull
from git_envhist.restore import sync as durable
from git_envhist.restore.finish import apply, finish
from git_envhist.restore.fs import DiskCalls
from git_envhist.restore.journal import read_journal
from git_envhist.restore.stage import stage
from git_envhist.restore.verify import verify
from tests.restore.engine import Engine, in_small_helpings
from tests.support.oracle import tree_differences
from tests.support.repository import Repo
from tests.support.trees import Directory, File, HardLink, build


def wreck(repo: Repo, *keep: str) -> None:
    """Take everything away but the repository and what is named."""
    for path in repo.path.iterdir():
        if path.name not in (".git", *keep):
            if path.is_dir() and not path.is_symlink():
                subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=True)
            subprocess.run(["rm", "-rf", str(path)], check=True)


@pytest.mark.parametrize("how", ["here", "fork"])
def test_rsync_sees_no_difference(repo: Repo, tmp_path: Path, how: str) -> None:
    tree = {
        b"d%d/e%d/f%d" % (n % 7, n % 31, n): File(b"%d\n" % n * n, mtime_ns=10**18 + n) for n in range(900)
    }
    build(
        {**tree, b"d1/twin": HardLink(b"d1/e1/f1"), b"closed/x": File(), b"closed": Directory(0o500)},
        repo.path,
    )
    repo.write(".env", b"TOKEN=1\n")
    repo.write("big", os.urandom(9 << 20))
    repo.execute("git", "init", "-q", "nested")
    repo.execute("git", "-C", "nested", "commit", "-q", "--allow-empty", "-m", "nested")
    subprocess.run(["cp", "-a", str(repo.path), str(tmp_path / "copy")], check=True)
    engine = Engine(repo.path, how=how)
    first, then = engine.capture(), engine.look()
    wreck(repo, "d3")
    outcome = engine.restore(engine.capture(), first)
    assert engine.look() == then
    assert tree_differences(tmp_path / "copy", repo.path) == ()
    assert (outcome.differences, outcome.skipped, outcome.prepared.losses) == ((), {}, ())
    assert repo.git("-C", "nested", "log", "--format=%s") == "nested"


def test_what_the_system_takes_and_gives_in_small_helpings_is_whole(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    build({b"d/f%d" % n: File(b"%d" % n * 9_000) for n in range(20)}, repo.path)
    repo.write("big", os.urandom(9 << 20))
    engine = Engine(repo.path, how="here")
    first, then = engine.capture(), engine.look()
    wreck(repo)
    second = engine.capture()
    in_small_helpings(monkeypatch)
    outcome = engine.restore(second, first)
    monkeypatch.undo()
    assert (outcome.differences, outcome.skipped) == ((), {})
    assert engine.look() == then


def test_holes_are_holes_again(repo: Repo) -> None:
    with open(repo.path / "sparse", "wb") as sparse:
        sparse.truncate(64 << 20)
        sparse.seek(40 << 20)
        sparse.write(b"in the middle")
    with open(repo.path / "small", "wb") as small:
        small.truncate(1 << 20)
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.look()
    wreck(repo)
    engine.restore(engine.capture(), first)
    assert engine.look() == then
    assert os.stat(repo.path / "sparse").st_blocks * 512 < 2 << 20
    assert os.stat(repo.path / "small").st_blocks * 512 < 1 << 18


def test_unchanged_files_are_not_touched(repo: Repo) -> None:
    repo.write("d/same", b"same")
    repo.write("d/other", b"1")
    engine = Engine(repo.path)
    first = engine.capture()
    repo.write("d/other", b"2")
    second = engine.capture()
    before = os.stat(repo.path / "d/same")
    engine.restore(second, first)
    after = os.stat(repo.path / "d/same")
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make devices")
def test_a_device_and_another_owner_come_back(repo: Repo) -> None:
    repo.write("owned", b"x")
    try:
        os.chown(repo.path / "owned", 1234, 2345)
        os.chmod(repo.path / "owned", 0o6755)
        os.mknod(repo.path / "null", 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices can be made here")
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.look()
    rdev = os.stat(repo.path / "null").st_rdev
    wreck(repo)
    engine.restore(engine.capture(), first)
    assert engine.look() == then
    assert os.stat(repo.path / "null").st_rdev == rdev


class Failing(DiskCalls):
    """Runs into an error at the n-th call of a kind."""

    def __init__(self, call: str, after: int, code: int) -> None:
        self.call, self.left, self.code = call, after, code

    def __getattribute__(self, name: str) -> Any:
        if name == "call" or name != self.call:
            return super().__getattribute__(name)
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))
        return super().__getattribute__(name)


@pytest.mark.parametrize("call", ["create", "write", "mkdir", "symlink", "mknod", "link", "fchmod"])
@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, StorageFull), (errno.ENAMETOOLONG, Refused)])
def test_what_fails_while_it_is_staged_has_changed_nothing(
    repo: Repo, call: str, code: int, error: type[Exception]
) -> None:
    repo.write("d/e/f", b"x")
    os.symlink("x", repo.path / "d" / "l")
    os.mkfifo(repo.path / "d" / "p")
    os.link(repo.path / "d/e/f", repo.path / "d" / "twin")
    engine = Engine(repo.path)
    first = engine.capture()
    wreck(repo)
    second, now = engine.capture(), engine.look()
    plan = engine.plan(second, first)
    with pytest.raises(error):
        engine.prepare(plan, Failing(call, 2 if call in ("fchmod", "mkdir") else 1, code))
    assert engine.look() == now
    assert read_journal(engine.private) is None


def test_a_step_that_the_system_refuses_is_told_and_the_others_are_made(repo: Repo) -> None:
    repo.write("a", b"1")
    repo.write("b", b"1")
    engine = Engine(repo.path)
    first = engine.capture()
    repo.write("a", b"2")
    repo.write("b", b"2")
    second = engine.capture()
    outcome = engine.restore(second, first, hands=Failing("exchange", 1, errno.EPERM))
    assert outcome.skipped == {b"a": os.strerror(errno.EPERM)}
    assert (repo.read("a"), repo.read("b")) == (b"2", b"1")


class Elsewhere(DiskCalls):
    """The git directory lies on another file system than the environment."""

    def rename(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        if name.startswith(b"absent-"):
            raise OSError(errno.EXDEV, "another file system")
        super().rename(one, name, other, other_name)


def test_slots_stand_at_the_top_where_the_git_directory_is_elsewhere(repo: Repo) -> None:
    repo.write("a", b"1")
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.look()
    repo.write("a", b"2")
    repo.write("new/x", b"2")
    second = engine.capture()
    plan = engine.plan(second, first)
    journal, _ = engine.prepare(plan, Elsewhere())
    assert (repo.path / ".envhist-restore").stat().st_mode & 0o777 == 0o700
    with engine.door(Elsewhere()) as door:
        apply(journal, door, fresh=True)
        finish(journal, door, engine.private)
    assert engine.look() == then
    assert engine.debris() == []


def test_a_link_that_stands_where_a_restore_would_work_is_refused(repo: Repo, tmp_path: Path) -> None:
    os.symlink(tmp_path, repo.path / ".envhist-restore")
    engine = Engine(repo.path)
    with pytest.raises(Refused), engine.door(Elsewhere()):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["repo"]


@pytest.mark.parametrize(
    ("what", "spoil"),
    [
        ("content", lambda top: (top / "f").write_bytes(b"y")),
        ("mode", lambda top: (top / "f").chmod(0o777)),
        ("mtime", lambda top: os.utime(top / "f", ns=(1, 1))),
        ("missing", lambda top: (top / "f").unlink()),
        ("kind", lambda top: ((top / "f").unlink(), (top / "f").mkdir())),
        ("attributes", lambda top: os.setxattr(top / "f", "user.a", b"b")),
        ("hard links", lambda top: ((top / "twin").rename(top / "t"), (top / "twin").write_bytes(b"x"))),
    ],
)
def test_whatever_is_not_as_it_should_be_is_found(repo: Repo, what: str, spoil: Any) -> None:
    repo.write("f", b"x")
    os.link(repo.path / "f", repo.path / "twin")
    engine = Engine(repo.path)
    first = engine.capture()
    wreck(repo)
    journal, _ = engine.prepare(engine.plan(engine.capture(), first))
    with engine.door() as door:
        apply(journal, door, fresh=True)
        assert verify(journal, door, engine.contents, how="here").differences == ()
        spoil(repo.path)
        assert what in {
            found.what for found in verify(journal, door, engine.contents, how="here").differences
        }
        finish(journal, door, engine.private)


@pytest.mark.parametrize(("few", "sync"), [(16, "sync_one"), (0, "sync")])
def test_what_is_staged_is_on_the_medium_before_the_journal_says_so(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, few: int, sync: str
) -> None:
    """And the swaps are before what went is thrown away."""
    monkeypatch.setattr(durable, "FEW", few)
    done: list[str] = []
    repo.write("a", b"1")
    engine = Engine(repo.path)
    first = engine.capture()
    repo.write("a", b"2")
    second = engine.capture()

    class Noting(DiskCalls):
        def __getattribute__(self, name: str) -> Any:
            if name in ("create", "exchange", "unlink", "sync", "sync_one"):
                done.append(name)
            return super().__getattribute__(name)

    plan = engine.plan(second, first)
    monkeypatch.setattr(DiskCalls, "sync_one", lambda hands, descriptor: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("fsync"))
    journal, _ = engine.prepare(plan, Noting())
    with engine.door(Noting()) as door:
        apply(journal, door, fresh=True)
        finish(journal, door, engine.private)
    order = [name for at, name in enumerate(done) if at == 0 or done[at - 1] != name]
    assert order == ["create", sync, "fsync", "exchange", sync, "fsync", "unlink", "fsync"]


def test_what_stands_in_the_way_is_read_where_no_capture_vouches_for_it(repo: Repo) -> None:
    """The same size, mode and time say nothing of the bytes."""
    at = 10**18
    repo.write("a", b"1")
    os.utime(repo.path / "a", ns=(at, at))
    engine = Engine(repo.path)
    first = engine.capture()
    repo.write("a", b"2")
    os.utime(repo.path / "a", ns=(at, at))
    second = engine.capture()
    repo.write("a", b"3")
    os.utime(repo.path / "a", ns=(at, at))
    with engine.door() as door:
        prepared = stage(engine.plan(second, first), door, engine.contents, how="here")
        assert [item.path for item in prepared.skipped] == [b"a"]
        door.clear()
