"""Opening a directory with one openat2 call gives the same result as opening it name by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from git_envhist.model import EnvPath
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.environment_disk import EnvironmentDisk, open_environment_disk

DEEP = EnvPath(b"a/b/c")


class NamesAlone(DiskCalls):
    """A system without openat2."""

    def open_beneath(self, base: int, path: bytes) -> int | None:
        return None


@pytest.fixture(params=[DiskCalls, NamesAlone])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EnvironmentDisk]:
    for name in ("top/a/b/c", "top/other/b/c", "private", "outside/b/c"):
        (tmp_path / name).mkdir(parents=True)
    closed = os.stat(tmp_path / "top" / "other")
    opened = open_environment_disk(
        {b"": os.fsencode(tmp_path / "top")},
        str(tmp_path / "private"),
        calls=request.param(),
        forbidden=frozenset({(closed.st_dev, closed.st_ino)}),
    )
    yield opened
    opened.close()


def reached(disk: EnvironmentDisk) -> int:
    """Return the inode of the opened directory."""
    with disk.directory(b"", DEEP) as descriptor:
        return os.fstat(descriptor).st_ino


def test_same_directory_is_opened_again(disk: EnvironmentDisk, tmp_path: Path) -> None:
    wanted = os.stat(tmp_path / "top/a/b/c").st_ino
    assert [reached(disk) for _ in range(3)] == [wanted] * 3


def test_single_call_is_used_when_available(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    base = os.open(tmp_path, os.O_RDONLY)
    opened = DiskCalls().open_beneath(base, b"a/b")
    os.close(base)
    if opened is None:
        pytest.skip("the kernel or its sandbox has no openat2")
    assert os.fstat(opened).st_ino == os.stat(tmp_path / "a" / "b").st_ino
    os.close(opened)


def test_replaced_directory_is_opened(disk: EnvironmentDisk, tmp_path: Path) -> None:
    reached(disk)
    os.rename(tmp_path / "top/a/b/c", tmp_path / "top/gone")
    (tmp_path / "top/a/b/c").mkdir()
    assert reached(disk) == os.stat(tmp_path / "top/a/b/c").st_ino


def link_inside(top: Path) -> None:
    os.rename(top / "a/b", top / "moved")
    (top / "a/b").symlink_to(top / "moved")


def link_outside(top: Path) -> None:
    os.rename(top / "a", top.parent / "elsewhere")
    (top / "a").symlink_to("../elsewhere")


def the_last_is_a_link(top: Path) -> None:
    os.rename(top / "a/b/c", top / "moved")
    (top / "a/b/c").symlink_to(top / "moved")


def a_forbidden_one(top: Path) -> None:
    os.rename(top / "a", top / "moved")
    os.rename(top / "other", top / "a")


def a_file(top: Path) -> None:
    os.rename(top / "a/b/c", top / "moved")
    (top / "a/b/c").write_bytes(b"")


@pytest.mark.parametrize("plant", [link_inside, link_outside, the_last_is_a_link, a_forbidden_one, a_file])
def test_planted_link_is_not_followed(
    disk: EnvironmentDisk, tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    reached(disk)
    plant(tmp_path / "top")
    for _ in range(2):
        with pytest.raises(NotADirectoryError):
            reached(disk)


def test_removed_directory_is_not_found(disk: EnvironmentDisk, tmp_path: Path) -> None:
    reached(disk)
    os.rename(tmp_path / "top/a", tmp_path / "top/moved")
    with pytest.raises(FileNotFoundError):
        reached(disk)
