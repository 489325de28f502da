"""Little disk space: what fits is captured; a restore has space for everything or changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.faults import needs_strace, traced
from tests.crash.restorecut import left_behind
from tests.support.mounts import Room, private_mounts
from tests.support.oracle import Listing, listing
from tests.support.repository import Repo, Result

KIB, MIB = 1 << 10, 1 << 20


class SmallDisk:
    """A repository on a separate small file system."""

    def __init__(self, room: Room, place: Path, env: dict[str, str]) -> None:
        self.room, self.place = room, place
        self.repo = Repo(room.seen(place), env)

    def run(self, *words: str, check: bool = False, fault: tuple[str, ...] = ()) -> Result:
        prefix = (*self.room.inside(self.place), "timeout", "--kill-after=5", "120", *fault)
        return self.repo.run(words[0], *words[1:], prefix=prefix, check=check)

    def capture(self, *words: str) -> str:
        return self.run("envlog", "capture", "--porcelain", *words, check=True).out.strip()

    @property
    def free(self) -> int:
        found = os.statvfs(self.repo.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int) -> Path:
        """Fill the file system up to a number of free bytes."""
        return self.repo.write(".git/filler", b"\0" * (self.free - leave))

    def list_files(self) -> Listing:
        return listing(self.repo.path, top=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with private_mounts() as room:
        place = tmp_path / "small"
        place.mkdir()
        room.mount("-t", "tmpfs", "-o", "size=32m", "tmpfs", place)
        room.run("git", "init", "-q", "--template=", place)
        yield SmallDisk(room, place, dict(os.environ))


def test_file_larger_than_the_free_space_is_skipped_and_the_rest_is_captured(disk: SmallDisk) -> None:
    for number in range(9):
        disk.repo.write(f"d/small{number}", os.urandom(3000))
    disk.repo.write("blob", os.urandom(7 * MIB))
    disk.repo.write("big", os.urandom(9 * MIB))
    disk.fill(leave=4 * MIB)
    done = disk.run("envlog", "capture", "--porcelain")
    assert done.status == 0
    assert sorted(done.err.splitlines()) == [
        "warning: not captured (disk: 7.0 MiB): 'blob'",
        "warning: not captured (disk: 9.0 MiB): 'big'",
    ]
    assert disk.free > 3 * MIB
    words = ("git", "-C", disk.place, "ls-tree", "-r", "--name-only", done.out.strip(), "d", "blob", "big")
    names = disk.room.run(*words).out
    assert names.split() == [f"d/small{number}" for number in range(9)]


def edited(disk: SmallDisk, size: int = 2 * MIB) -> tuple[str, Listing]:
    """Return a snapshot of an older version of the file, and the files as they are now."""
    disk.repo.write("data", b"first " * (size // 6))
    disk.repo.write("goes", b"1")
    first, then = disk.capture("first"), disk.list_files()
    disk.repo.write("data", b"other " * (size // 6))
    (disk.repo.path / "goes").unlink()
    disk.repo.write("came/here", b"2")
    return first, then


def assert_refused(disk: SmallDisk, done: Result, before: Listing, said: str) -> None:
    assert done.status in (3, 128), done.err
    assert said in done.err
    assert disk.list_files() == before
    assert left_behind(disk.repo) == []


def test_restore_without_enough_space_writes_nothing(disk: SmallDisk) -> None:
    first, then = edited(disk)
    filler = disk.fill(leave=2 * MIB)
    before, free = disk.list_files(), disk.free
    done = disk.run("envrestore", first)
    assert_refused(disk, done, before, "not enough space to restore: 2,1")
    assert disk.free > free - 20 * KIB
    filler.unlink()
    disk.run("envrestore", first, check=True)
    assert disk.list_files() == then


def test_file_is_not_replaced_when_it_cannot_be_saved(disk: SmallDisk) -> None:
    first, _ = edited(disk)
    disk.repo.write("data", os.urandom(2 * MIB))
    disk.fill(leave=MIB)
    before = disk.list_files()
    assert_refused(
        disk, disk.run("envrestore", first), before, "cannot be saved before it is replaced: 'data'"
    )


def test_small_restore_succeeds_on_a_nearly_full_disk(disk: SmallDisk) -> None:
    first, then = edited(disk, size=9 * KIB)
    disk.fill(leave=1400 * KIB)
    disk.run("envrestore", first, check=True)
    assert disk.list_files() == then


def test_sparse_file_needs_space_for_its_data_only(disk: SmallDisk) -> None:
    place = disk.repo.write("sparse", os.urandom(MIB))
    os.truncate(place, 64 * MIB)
    first, then = disk.capture("first"), disk.list_files()
    place.unlink()
    disk.fill(leave=8 * MIB)
    disk.run("envrestore", first, check=True)
    assert disk.list_files() == then
    assert os.stat(place).st_blocks * 512 < 4 * MIB


def test_file_system_without_free_inodes_is_reported(disk: SmallDisk) -> None:
    for number in range(50):
        disk.repo.write(f"d/{number}", b"1")
    first, then = disk.capture("first"), disk.list_files()
    for number in range(50):
        (disk.repo.path / f"d/{number}").unlink()
    before, used = disk.list_files(), os.statvfs(disk.repo.path)
    many = used.f_files - used.f_ffree + 40
    disk.room.mount("-o", f"remount,nr_inodes={many}", disk.place)
    assert_refused(disk, disk.run("envrestore", first), before, "82 inodes are needed, and 3")
    disk.room.mount("-o", "remount,nr_inodes=10k", disk.place)
    disk.run("envrestore", first, check=True)
    assert disk.list_files() == then


def exhaust_inodes(disk: SmallDisk) -> list[Path]:
    """Use up all free inodes; return the files that use them."""
    fillers: list[Path] = []
    (disk.repo.path / ".git/fillers").mkdir()
    try:
        while True:
            filler = disk.repo.path / f".git/fillers/{len(fillers)}"
            filler.touch()
            fillers.append(filler)
    except OSError:
        return fillers


@pytest.fixture(params=["tmpfs", "ext4"])
def few_inodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    with private_mounts() as room:
        place = tmp_path / "few"
        place.mkdir()
        if request.param == "tmpfs":
            room.mount("-t", "tmpfs", "-o", "size=32m,nr_inodes=400", "tmpfs", place)
        else:
            room.run("truncate", "-s", "32m", tmp_path / "image")
            room.run("mkfs.ext4", "-q", "-N", "400", tmp_path / "image")
            room.mount("-o", "loop", tmp_path / "image", place)
            room.run("rmdir", place / "lost+found")
        room.run("git", "init", "-q", "--template=", place)
        try:
            yield SmallDisk(room, place, dict(os.environ))
        finally:
            room.umount(place)


@pytest.mark.full
def test_restore_is_refused_or_complete_at_each_number_of_free_inodes(few_inodes: SmallDisk) -> None:
    disk = few_inodes
    first, then = edited(disk)
    now = disk.list_files()
    fillers = exhaust_inodes(disk)
    for _ in range(64):
        done = disk.run("envrestore", first)
        if done.status == 0:
            break
        assert_refused(
            disk, done, now, "inodes are needed" if "not enough space" in done.err else "no space left"
        )
        fillers.pop().unlink()
    assert (done.status, done.err) == (0, "")
    assert disk.list_files() == then
    shutil.rmtree(fillers[0].parent)
    disk.run("envrestore", "--undo", check=True)
    assert disk.list_files() == now


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("end", ["--abort", "--continue"])
def test_interrupted_restore_can_be_ended_without_a_free_inode(few_inodes: SmallDisk, end: str) -> None:
    disk = few_inodes
    first, then = edited(disk)
    now, second, ended = disk.list_files(), disk.capture("second"), 0
    for call in range(1, 12):
        disk.run("envrestore", first, fault=traced("renameat2", "signal=KILL", str(call)))
        if not (disk.repo.path / ".git/envhist/restore/journal").exists():
            continue
        fillers = exhaust_inodes(disk)
        done = disk.run("envrestore", end)
        assert done.status in (0, 5), done.err
        assert disk.list_files() == (then if end == "--continue" else now)
        shutil.rmtree(fillers[0].parent)
        disk.run("envrestore", second, check=True)
        assert disk.list_files() == now
        ended += 1
    assert ended > 2
