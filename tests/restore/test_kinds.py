"""Every kind of entry is restored exactly, or reported."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from git_envhist.errors import Refused, StorageFull
from git_envhist.restore import sync as durable
from git_envhist.restore.apply_journal import apply, finish
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.journal import read_journal
from git_envhist.restore.stage import stage
from git_envhist.restore.verify import verify_restored_files
from tests.restore.engine import Engine, transfer_few_bytes
from tests.support.oracle import tree_differences
from tests.support.repository import Repo
from tests.support.trees import Directory, File, HardLink, build


def wreck(repo: Repo, *keep: str) -> None:
    """Remove everything but the repository and the named paths."""
    for path in repo.path.iterdir():
        if path.name not in (".git", *keep):
            if path.is_dir() and not path.is_symlink():
                subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=True)
            subprocess.run(["rm", "-rf", str(path)], check=True)


@pytest.mark.parametrize("how", ["here", "fork"])
def test_restored_tree_equals_the_original_for_rsync(repo: Repo, tmp_path: Path, how: str) -> None:
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
    first, then = engine.capture(), engine.list_files()
    wreck(repo, "d3")
    outcome = engine.restore(engine.capture(), first)
    assert engine.list_files() == then
    assert tree_differences(tmp_path / "copy", repo.path) == ()
    assert (outcome.differences, outcome.skipped, outcome.prepared.losses) == ((), {}, ())
    assert repo.git("-C", "nested", "log", "--format=%s") == "nested"


def test_restore_is_complete_when_calls_transfer_few_bytes(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    build({b"d/f%d" % n: File(b"%d" % n * 9_000) for n in range(20)}, repo.path)
    repo.write("big", os.urandom(9 << 20))
    engine = Engine(repo.path, how="here")
    first, then = engine.capture(), engine.list_files()
    wreck(repo)
    second = engine.capture()
    transfer_few_bytes(monkeypatch)
    outcome = engine.restore(second, first)
    monkeypatch.undo()
    assert (outcome.differences, outcome.skipped) == ((), {})
    assert engine.list_files() == then


def test_sparse_file_is_restored_sparse(repo: Repo) -> None:
    with open(repo.path / "sparse", "wb") as sparse:
        sparse.truncate(64 << 20)
        sparse.seek(40 << 20)
        sparse.write(b"in the middle")
    with open(repo.path / "small", "wb") as small:
        small.truncate(1 << 20)
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.list_files()
    wreck(repo)
    engine.restore(engine.capture(), first)
    assert engine.list_files() == then
    assert os.stat(repo.path / "sparse").st_blocks * 512 < 2 << 20
    assert os.stat(repo.path / "small").st_blocks * 512 < 1 << 18


def test_unchanged_file_is_not_touched(repo: Repo) -> None:
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create devices")
def test_device_and_other_owner_are_restored(repo: Repo) -> None:
    repo.write("owned", b"x")
    try:
        os.chown(repo.path / "owned", 1234, 2345)
        os.chmod(repo.path / "owned", 0o6755)
        os.mknod(repo.path / "null", 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this system does not allow devices")
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.list_files()
    rdev = os.stat(repo.path / "null").st_rdev
    wreck(repo)
    engine.restore(engine.capture(), first)
    assert engine.list_files() == then
    assert os.stat(repo.path / "null").st_rdev == rdev


class Failing(DiskCalls):
    """Fail at the n-th call with a given name."""

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
def test_error_while_staging_changes_nothing(
    repo: Repo, call: str, code: int, error: type[Exception]
) -> None:
    repo.write("d/e/f", b"x")
    os.symlink("x", repo.path / "d" / "l")
    os.mkfifo(repo.path / "d" / "p")
    os.link(repo.path / "d/e/f", repo.path / "d" / "twin")
    engine = Engine(repo.path)
    first = engine.capture()
    wreck(repo)
    second, now = engine.capture(), engine.list_files()
    plan = engine.plan(second, first)
    with pytest.raises(error):
        engine.prepare(plan, Failing(call, 2 if call in ("fchmod", "mkdir") else 1, code))
    assert engine.list_files() == now
    assert read_journal(engine.private) is None


def test_step_refused_by_the_system_is_reported_and_the_others_are_done(repo: Repo) -> None:
    repo.write("a", b"1")
    repo.write("b", b"1")
    engine = Engine(repo.path)
    first = engine.capture()
    repo.write("a", b"2")
    repo.write("b", b"2")
    second = engine.capture()
    outcome = engine.restore(second, first, calls=Failing("exchange", 1, errno.EPERM))
    assert outcome.skipped == {b"a": os.strerror(errno.EPERM)}
    assert (repo.read("a"), repo.read("b")) == (b"2", b"1")


class Elsewhere(DiskCalls):
    """The git directory is on another file system than the environment."""

    def rename(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        if name.startswith(b"absent-"):
            raise OSError(errno.EXDEV, "another file system")
        super().rename(one, name, other, other_name)


def test_slots_are_in_the_root_when_the_git_directory_is_on_another_file_system(repo: Repo) -> None:
    repo.write("a", b"1")
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.list_files()
    repo.write("a", b"2")
    repo.write("new/x", b"2")
    second = engine.capture()
    plan = engine.plan(second, first)
    journal, _ = engine.prepare(plan, Elsewhere())
    assert (repo.path / ".envhist-restore").stat().st_mode & 0o777 == 0o700
    with engine.disk(Elsewhere()) as disk:
        apply(journal, disk, fresh=True)
        finish(journal, disk, engine.private)
    assert engine.list_files() == then
    assert engine.debris() == []


def test_link_in_the_place_of_the_private_directory_is_refused(repo: Repo, tmp_path: Path) -> None:
    os.symlink(tmp_path, repo.path / ".envhist-restore")
    engine = Engine(repo.path)
    with pytest.raises(Refused), engine.disk(Elsewhere()):
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
def test_verify_finds_every_difference(repo: Repo, what: str, spoil: Any) -> None:
    repo.write("f", b"x")
    os.link(repo.path / "f", repo.path / "twin")
    engine = Engine(repo.path)
    first = engine.capture()
    wreck(repo)
    journal, _ = engine.prepare(engine.plan(engine.capture(), first))
    with engine.disk() as disk:
        apply(journal, disk, fresh=True)
        assert verify_restored_files(journal, disk, engine.contents, how="here").differences == ()
        spoil(repo.path)
        assert what in {
            found.field
            for found in verify_restored_files(journal, disk, engine.contents, how="here").differences
        }
        finish(journal, disk, engine.private)


@pytest.mark.parametrize(("few", "sync"), [(16, "sync_file"), (0, "sync")])
def test_staged_files_are_synced_before_the_journal_is_written(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, few: int, sync: str
) -> None:
    """The swaps are also synced before replaced files are removed."""
    monkeypatch.setattr(durable, "FEW", few)
    done: list[str] = []
    repo.write("a", b"1")
    engine = Engine(repo.path)
    first = engine.capture()
    repo.write("a", b"2")
    second = engine.capture()

    class Noting(DiskCalls):
        def __getattribute__(self, name: str) -> Any:
            if name in ("create", "exchange", "unlink", "sync", "sync_file"):
                done.append(name)
            return super().__getattribute__(name)

    plan = engine.plan(second, first)
    monkeypatch.setattr(DiskCalls, "sync_file", lambda calls, descriptor: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("fsync"))
    journal, _ = engine.prepare(plan, Noting())
    with engine.disk(Noting()) as disk:
        apply(journal, disk, fresh=True)
        finish(journal, disk, engine.private)
    order = [name for at, name in enumerate(done) if at == 0 or done[at - 1] != name]
    assert order == ["create", sync, "fsync", "exchange", sync, "fsync", "unlink", "fsync"]


def test_replaced_file_is_read_when_no_capture_recorded_it(repo: Repo) -> None:
    """Equal size, mode and time do not prove equal contents."""
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
    with engine.disk() as disk:
        prepared = stage(engine.plan(second, first), disk, engine.contents, how="here")
        assert [item.path for item in prepared.skipped] == [b"a"]
        disk.clear()
