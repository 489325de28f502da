"""Mounts below the working tree are listed, but neither entered nor read with stat, unless envhist.crossMounts is
set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.capture.scope import read_mounts, visible_points
from git_envhist.platform import WITHOUT, Mount
from tests.capture.helpers import everything_stored
from tests.end_to_end.captures import assert_holds
from tests.support.mounts import Room, private_mounts
from tests.support.oracle import Listing
from tests.support.repository import Repo
from tests.support.snapshot import read_back
from tests.support.trees import File, build

HIDDEN = b"what the mount covers"


@pytest.fixture
def room() -> Iterator[Room]:
    with private_mounts() as there:
        yield there


def prepare(repo: Repo) -> Path:
    """Make a directory with a file to mount over, and one to mount."""
    build({b"deps/data/covered": File(HIDDEN), b"deps/beside": File(b"2"), b"src/a": File(b"3")}, repo.path)
    volume = repo.path.parent / "volume"
    build({b"inner/file": File(b"in the volume"), b"file": File(b"4")}, volume)
    return volume


def taken(room: Room, repo: Repo, *words: str) -> str:
    return room.capture(repo, *words).out.strip()


def missing(repo: Repo, commit: str) -> set[str]:
    shown = repo.run_git("show", f"{commit}:.envhist/missing", check=False)
    return {line.split("\t")[0] if "\t" in line else line.split(" ")[0] for line in shown.out.splitlines()}


def below(found: Listing, path: bytes) -> set[bytes]:
    return {one for one in found if one.startswith(path + b"/")}


def mount_at(room: Room, kind: str, place: Path, volume: Path) -> None:
    if kind == "tmpfs":
        room.mount("-t", "tmpfs", "tmpfs", place)
        build({b"inner/file": File(b"in memory")}, room.seen(place))
    elif kind == "bind":
        room.mount("--bind", volume, place)
    elif kind == "overlay":
        for name in ("upper", "work"):
            (volume.parent / name).mkdir()
        layers = f"lowerdir={volume},upperdir={volume.parent}/upper,workdir={volume.parent}/work"
        room.mount("-t", "overlay", "-o", layers, "overlay", place)
    else:
        room.serve("plain", volume, place)


@pytest.mark.parametrize("kind", ["tmpfs", "bind", "overlay", "fuse"])
def test_mount_is_listed_as_missing_or_captured_as_configured(repo: Repo, room: Room, kind: str) -> None:
    volume, place = prepare(repo), repo.path / "deps/data"
    mount_at(room, kind, place, volume)
    commit = taken(room, repo)
    assert missing(repo, commit) == {"deps/data"}
    found = read_back(repo, commit).listing
    assert below(found, b"deps/data") == set()
    assert {b"deps/beside", b"src/a"} <= set(found)
    assert HIDDEN not in everything_stored(repo)

    repo.git("config", "envhist.crossMounts", "true")
    assert_holds(repo, taken(room, repo), room.listing(repo.path))
    repo.git("config", "envhist.crossMounts", "false")
    assert missing(repo, taken(room, repo)) == {"deps/data"}


@pytest.mark.parametrize("crossing", ["false", "true"])
def test_mount_and_unmount_between_captures_are_noticed(repo: Repo, room: Room, crossing: str) -> None:
    repo.git("config", "envhist.crossMounts", crossing)
    volume, place = prepare(repo), repo.path / "deps/data"
    assert_holds(repo, taken(room, repo), room.listing(repo.path))
    for _ in range(2):
        room.mount("--bind", volume, place)
        commit = taken(room, repo)
        if crossing == "true":
            assert_holds(repo, commit, room.listing(repo.path))
        else:
            assert missing(repo, commit) == {"deps/data"}
            assert below(read_back(repo, commit).listing, b"deps/data") == set()
        room.umount(place)
        assert_holds(repo, taken(room, repo), room.listing(repo.path))


@pytest.mark.parametrize("how", ["here", "fork"])
def test_mounted_file_system_is_noticed_without_a_table_of_mounts(
    repo: Repo, room: Room, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv(WITHOUT, "proc" if how == "fork" else "proc,fork,spawn")
    prepare(repo)
    build({b"deps/data/deep/er/file": File(b"5"), b"deps/data/deep/file": File(b"6")}, repo.path)
    assert_holds(repo, taken(room, repo), room.listing(repo.path))
    for _ in range(2):
        room.mount("-t", "tmpfs", "tmpfs", repo.path / "deps/data")
        # The mounted tree has directories of the same names; the stat cache must not lead into them.
        build(
            {b"deep/er/file": File(b"in memory"), b"other/file": File(b"8")},
            room.seen(repo.path / "deps/data"),
        )
        for _ in range(2):
            commit = taken(room, repo)
            assert missing(repo, commit) == {"deps/data"}
            assert below(read_back(repo, commit).listing, b"deps/data") == set()
        room.umount(repo.path / "deps/data")
        assert_holds(repo, taken(room, repo), room.listing(repo.path))
    assert b"in memory" not in everything_stored(repo)


def test_mount_on_a_file_is_listed_or_captured(repo: Repo, room: Room) -> None:
    volume = prepare(repo)
    room.mount("--bind", volume / "file", repo.path / "src/a")
    commit = taken(room, repo)
    assert missing(repo, commit) == {"src/a"}
    assert b"src/a" not in read_back(repo, commit).listing
    repo.git("config", "envhist.crossMounts", "true")
    assert_holds(repo, taken(room, repo), room.listing(repo.path))
    assert repo.git("show", f"{taken(room, repo)}:src/a") == "4"
    room.umount(repo.path / "src/a")
    assert_holds(repo, taken(room, repo), room.listing(repo.path))


def test_nested_and_stacked_mounts_with_special_characters_in_their_names(repo: Repo, room: Room) -> None:
    volume = prepare(repo)
    odd = repo.path / "a b\\134\tc\nd#é"
    odd.mkdir()
    room.mount("--bind", volume, repo.path / "deps/data")
    room.mount("-t", "tmpfs", "tmpfs", repo.path / "deps/data/inner")
    room.mount("-t", "tmpfs", "tmpfs", repo.path / "deps/data")
    room.mount("-t", "tmpfs", "tmpfs", odd)
    commit = taken(room, repo)
    found = read_back(repo, commit).listing
    assert below(found, b"deps/data") == below(found, os.fsencode(odd.name)) == set()
    shown = repo.run_git("show", f"{commit}:.envhist/missing").out.splitlines()
    assert len(shown) == 2
    repo.git("config", "envhist.crossMounts", "true")
    assert_holds(repo, taken(room, repo), room.listing(repo.path))


def test_mount_hidden_by_a_later_mount_is_not_a_mount_point(repo: Repo, room: Room) -> None:
    volume = prepare(repo)
    room.mount("--bind", volume, repo.path / "deps/data")
    # Mount the working tree over itself, without the mounts inside it.
    room.mount("--bind", repo.path, repo.path)
    commit = taken(room, repo)
    assert missing(repo, commit) == set()
    assert_holds(repo, commit, room.listing(repo.path))


@pytest.mark.parametrize("how", ["proc", "proc,fchdir,nofollow"])
def test_change_of_device_shows_a_mount_without_a_table_of_mounts(repo: Repo, room: Room, how: str) -> None:
    prepare(repo)
    room.mount("-t", "tmpfs", "tmpfs", repo.path / "deps/data")
    build({b"inner/file": File(b"in memory")}, room.seen(repo.path / "deps/data"))
    repo.env[WITHOUT] = how
    commit = taken(room, repo)
    assert missing(repo, commit) == {"deps/data"}
    assert below(read_back(repo, commit).listing, b"deps/data") == set()
    repo.git("config", "envhist.crossMounts", "true")
    assert_holds(repo, taken(room, repo), room.listing(repo.path))


def test_mount_that_never_answers_does_not_block_a_capture(repo: Repo, room: Room) -> None:
    volume, place = prepare(repo), repo.path / "deps/data"
    repo.commit("with what is covered tracked")
    taken(room, repo)
    room.serve("hanging", volume, place)
    # With the last capture's stat cache, in a dry run, and without the cache.
    for words in ((), ("--dry-run",)):
        done = room.capture(repo, *words)
        assert done.status == 0
    (repo.path / ".git/envhist/cache/head").unlink(missing_ok=True)
    assert missing(repo, taken(room, repo)) == {"deps/data"}


def test_repository_and_keys_are_not_captured_through_a_mount(repo: Repo, room: Room) -> None:
    prepare(repo)
    repo.write(".env", b"SECRET=1\n")
    repo.git("worktree", "add", "-q", "linked")
    repo.git("config", "envhist.crossMounts", "true")
    room.mount("--bind", repo.path, repo.path / "deps/data")
    commit = taken(room, repo)
    found = read_back(repo, commit).listing
    assert {b"deps/data/src/a", b"deps/data/linked", b"deps/data/.env"} <= set(found)
    assert below(found, b"deps/data/.git") == below(found, b"deps/data/linked") == set()
    assert not [path for path in found if b"envhist/keys" in path]


def test_working_tree_that_is_a_mount_point_is_captured(repo: Repo, room: Room) -> None:
    volume = prepare(repo)
    room.mount("--bind", volume.parent, volume.parent)
    commit = taken(room, repo)
    assert missing(repo, commit) == set()
    assert_holds(repo, commit, room.listing(repo.path))


def test_table_of_mounts_is_read_in_the_kernels_format(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(
        b"20 1 8:1 / / rw - ext4 /dev/a rw\n"
        b"30 20 0:30 / /w/a\\040b rw shared:1 - tmpfs tmpfs rw\n"
        b"31 20 0:31 / /w/back\\134040slash rw - tmpfs tmpfs rw\n"
    )
    assert read_mounts(str(table)) == (b"/", b"/w/a b", b"/w/back\\040slash")
    assert read_mounts(str(tmp_path / "none")) is None
    table.write_bytes(b"damaged\n")
    assert read_mounts(str(table)) is None


def test_loop_in_the_table_of_mounts_is_no_endless_loop() -> None:
    assert visible_points([Mount(b"1", b"2", b"/a"), Mount(b"2", b"1", b"/b")]) == (b"/a", b"/b")
