"""Paths that are synced before a restore continues: few paths one by one, otherwise the whole file system."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from git_envhist.errors import EnvhistError
from git_envhist.model import Snapshot
from git_envhist.restore.apply_journal import apply, finish
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.plan_steps import PRIVATE
from git_envhist.restore.slots import ASIDE
from tests.restore.engine import Engine
from tests.support.repository import Repo

TIME = 10**18


class Noting(DiskCalls):
    """Record the synced paths, and count syncs of the whole file system."""

    def __init__(self) -> None:
        self.synced: set[str] = set()
        self.whole = 0

    def sync_file(self, descriptor: int) -> None:
        self.synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    def sync(self, descriptor: int) -> None:
        self.whole += 1


def below(top: str) -> set[str]:
    found = {top}
    for place, directories, names in os.walk(top):
        found.update(os.path.join(place, name) for name in (*directories, *names))
    return found


def test_few_paths_are_synced_one_by_one_when_staged_and_when_swapped(repo: Repo) -> None:
    repo.write("a", b"1")
    repo.write("d/b", b"1")
    repo.write("touched", b"same")
    repo.write("new/e/f", b"1")
    engine = Engine(repo.path)
    first = engine.capture()
    repo.write("a", b"2")
    repo.write("d/b", b"2")
    (repo.path / "touched").chmod(0o600)
    (repo.path / "new/e/f").unlink()
    (repo.path / "new/e").rmdir()
    (repo.path / "new").rmdir()
    second = engine.capture()
    staging, ending = Noting(), Noting()
    journal, _ = engine.prepare(engine.plan(second, first), staging)
    # The reserved files and the empty directory of kept files may be missing after a power failure.
    names = ("journal", "phase.done", "phase.undone", "realm-/kept")
    not_yet = {os.path.join(engine.private, name) for name in names}
    assert (staging.synced, staging.whole) == (below(engine.private) - not_yet, 0)
    with engine.disk(ending) as disk:
        apply(journal, disk, fresh=True)
        finish(journal, disk, engine.private)
    top = str(repo.path)
    assert {top, f"{top}/d", f"{top}/new", f"{top}/touched"} <= ending.synced
    assert ending.whole == 0


@pytest.mark.parametrize("odd", ["link", "pipe", "many", "goes"])
def test_file_system_is_synced_when_paths_are_many_or_cannot_be_opened(
    repo: Repo, tmp_path: Path, odd: str
) -> None:
    repo.write("a", b"1")
    match odd:
        case "link":
            os.symlink("a", repo.path / "link")
        case "pipe":
            os.mkfifo(repo.path / "pipe")
        case "many":
            for number in range(20):
                repo.write(f"m{number}", b"1")
    engine = Engine(repo.path)
    first = engine.capture()
    for path in repo.path.iterdir():
        if path.name != ".git":
            path.unlink()
    if odd == "goes":
        repo.write("goes/with/it", b"1")
    second = engine.capture()
    staging, ending = Noting(), Noting()
    journal, _ = engine.prepare(engine.plan(second, first), staging)
    with engine.disk(ending) as disk:
        apply(journal, disk, fresh=True)
        finish(journal, disk, engine.private)
    assert (staging.whole, ending.whole) == ((0, 1) if odd == "goes" else (1, 0 if odd != "many" else 1))
    assert repo.read("a") == b"1"


class Unable(Noting):
    """A file system on which the sync of a directory fails with `code`."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code

    def sync_file(self, descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(self._code, os.strerror(self._code))


def test_file_system_is_synced_when_it_cannot_sync_a_directory(repo: Repo) -> None:
    engine, first, second = two_moments(repo)
    calls = Unable(errno.EINVAL)
    engine.restore(second, first, calls=calls)
    assert calls.whole == 2
    assert repo.read("a") == b"1"


def test_failed_sync_fails_the_restore(repo: Repo) -> None:
    engine, first, second = two_moments(repo)
    calls = Unable(errno.EIO)
    with pytest.raises(EnvhistError, match="cannot prepare the restore"):
        engine.restore(second, first, calls=calls)
    assert calls.whole == 0
    assert repo.read("a") == b"2"


def test_files_kept_during_a_restore_are_synced(repo: Repo) -> None:
    engine, first, second = two_moments(repo)
    journal, _ = engine.prepare(engine.plan(second, first))
    calls = Noting()
    with engine.disk(calls) as disk:
        slots = disk.slots(b"")
        directory, name = slots.at(0)
        calls.link(directory, name, directory, name + ASIDE)
        kept = slots.keep_named(directory, name + ASIDE, b"a")
        apply(journal, disk, fresh=True)
        finish(journal, disk, engine.private)
    assert os.path.dirname(os.fsdecode(kept)) in calls.synced
    assert calls.whole == 0


def two_moments(repo: Repo) -> tuple[Engine, Snapshot, Snapshot]:
    repo.write("a", b"1")
    engine = Engine(repo.path)
    first = engine.capture()
    repo.write("a", b"2")
    return engine, first, engine.capture()


def test_root_on_another_file_system_is_synced_after_its_slots_are_removed(repo: Repo) -> None:
    engine, first, second = two_moments(repo)
    calls = Apart()
    engine.restore(second, first, calls=calls)
    assert calls.after_clearing == [str(repo.path)]
    assert calls.whole == 0
    assert engine.debris() == []


class Apart(Noting):
    """A git directory on another file system: renames from it into the environment fail."""

    def __init__(self) -> None:
        super().__init__()
        self.after_clearing: list[str] = []
        self._is_cleared = False

    def rename(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        if name.startswith(b"absent-"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().rename(one, name, other, other_name)

    def rmdir(self, directory: int, name: bytes) -> None:
        super().rmdir(directory, name)
        self._is_cleared |= name == PRIVATE

    def sync_file(self, descriptor: int) -> None:
        super().sync_file(descriptor)
        if self._is_cleared:
            self.after_clearing.append(os.readlink(f"/proc/self/fd/{descriptor}"))
