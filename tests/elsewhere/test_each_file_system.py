"""Capture, restore, undo, `--to`, fork and verify on common file systems, judged by find and sha256sum."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.restore import write_elsewhere
from tests.support.mounts import Room, private_mounts
from tests.support.needs import require
from tests.support.oracle import Listing, listing
from tests.support.repository import Repo, make_repo
from tests.support.trees import Directory, File, HardLink, Link, Tree, build

TREE: Tree = {
    b"deep/er/file": File(b"1\n", 0o640, 10**18 + 123_456_789),
    b"deep/er": Directory(0o750, 10**18 + 5),
    b"deep/twin": HardLink(b"deep/er/file"),
    b"empty": Directory(0o700),
    b"link": Link(b"deep/er/file"),
    b"many": Directory(),
    **{b"many/%d" % number: File(b"%d" % number) for number in range(300)},
}


@pytest.fixture
def room() -> Iterator[Room]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    with private_mounts() as made:
        yield made


def mount_image(room: Room, above: Path, *make: str) -> Path:
    """Make a file system in a file and mount it."""
    require(make[0])
    image, place = above / "image", above / "mounted"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(400 << 20)
    room.run(*make, image)
    room.mount("-o", "loop", image, place)
    return place


def mount_subvolume(room: Room, above: Path) -> Path:
    """Mount btrfs and make a subvolume with another one inside."""
    place = mount_image(room, above, "mkfs.btrfs", "-q")
    room.run("btrfs", "-q", "subvolume", "create", place / "volume")
    return place / "volume"


def mount_overlay(room: Room, above: Path) -> Path:
    """Mount an overlay as a container has it, on a tmpfs, because an overlay cannot be the upper layer of another."""
    base = above / "base"
    base.mkdir()
    room.mount("-t", "tmpfs", "tmpfs", base)
    room.run("mkdir", base / "lower", base / "upper", base / "work", base / "mounted")
    options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
    room.mount("-t", "overlay", "overlay", "-o", options, base / "mounted")
    return base / "mounted"


def mount_tmpfs(room: Room, above: Path) -> Path:
    place = above / "mounted"
    place.mkdir()
    room.mount("-t", "tmpfs", "tmpfs", place)
    return place


def mount_bind(room: Room, above: Path) -> Path:
    """Bind a directory of a file system to another path of the same one; renames between the two fail."""
    place, source = above / "mounted", above / "bound"
    place.mkdir()
    source.mkdir()
    room.mount("--bind", source, place)
    return place


def mount_fuse(room: Room, above: Path, manner: str = "hiding") -> Path:
    """Serve a directory through FUSE; with `hiding`, a removed file that is still open keeps a name."""
    place, source = above / "mounted", above / "served"
    place.mkdir()
    source.mkdir()
    room.serve(manner, source, place)
    return place


def mount_casefold(room: Room, above: Path) -> Path:
    """Make a directory of ext4 in which names that differ only by case are one; skip if the kernel has no Unicode."""
    place = mount_image(room, above, "mkfs.ext4", "-q", "-O", "casefold", "-E", "encoding=utf8")
    room.run("mkdir", place / "folded")
    room.run("chattr", "+F", place / "folded")
    return place / "folded"


FILE_SYSTEMS: dict[str, Callable[[Room, Path], Path]] = {
    "btrfs": lambda room, above: mount_image(room, above, "mkfs.btrfs", "-q"),
    "btrfs subvolume": mount_subvolume,
    "xfs": lambda room, above: mount_image(room, above, "mkfs.xfs", "-q"),
    "ext4": lambda room, above: mount_image(room, above, "mkfs.ext4", "-q"),
    "xfs of old": lambda room, above: mount_image(room, above, "mkfs.xfs", "-q", "-m", "bigtime=0,reflink=0"),
    "ext4, times in seconds": lambda room, above: mount_image(room, above, "mkfs.ext4", "-q", "-I", "128"),
    "ext4, casefold": mount_casefold,
    "ext3": lambda room, above: mount_image(room, above, "mkfs.ext3", "-q"),
    "ext2": lambda room, above: mount_image(room, above, "mkfs.ext2", "-q", "-b", "1024"),
    "bind mount": mount_bind,
    "fuse": mount_fuse,
    "overlayfs": mount_overlay,
    "tmpfs": mount_tmpfs,
}


def run(room: Room, repo: Repo, program: str, *words: str) -> str:
    prefix = (*room.inside(repo.path), "timeout", "--kill-after=5", "120")
    return repo.run(program, *words, prefix=prefix, cwd="/", check=True).out


def look(room: Room, path: Path) -> Listing:
    return listing(room.seen(path), top=True)


@pytest.mark.full
@pytest.mark.parametrize("name", FILE_SYSTEMS)
def test_restore_undo_to_fork_and_verify_are_exact_on_each_file_system(
    room: Room, tmp_path: Path, name: str
) -> None:
    place = FILE_SYSTEMS[name](room, tmp_path)
    env = make_repo(tmp_path / "source").env
    room.run("cp", "-a", tmp_path / "source", place / "repo")
    repo = Repo(place / "repo", env)
    build(TREE, room.seen(repo.path))
    run(room, repo, "envlog", "capture", "first", "--name", "first")
    first = look(room, repo.path)

    seen = room.seen(repo.path)
    (seen / "deep/er/file").write_bytes(b"2\n")
    (seen / "many/7").unlink()
    (seen / "many/new").write_bytes(b"new")
    (seen / "empty").rmdir()
    run(room, repo, "envlog", "capture", "second", "--name", "second")
    second = look(room, repo.path)

    run(room, repo, "envrestore", "first")
    assert look(room, repo.path) == first
    run(room, repo, "envrestore", "--undo")
    assert look(room, repo.path) == second
    run(room, repo, "envrestore", "--to", str(place / "out"), "first")
    assert look(room, place / "out") == first
    run(room, repo, "envlog", "fork", str(place / "forked"), "first")
    assert listing(room.seen(place / "forked")) == {path: entry for path, entry in first.items() if path}
    run(room, repo, "envlog", "verify", "first", "--", "grep", "-q", "1", "deep/er/file")
    run(room, repo, "envlog", "verify", "second", "--", "grep", "-q", "2", "deep/er/file")


@pytest.mark.full
def test_btrfs_snapshot_of_a_working_tree_is_a_separate_working_tree(room: Room, tmp_path: Path) -> None:
    volume = mount_subvolume(room, tmp_path)
    env = make_repo(tmp_path / "source").env
    room.run("cp", "-a", tmp_path / "source", volume / "repo")
    repo = Repo(volume / "repo", env)
    build(TREE, room.seen(repo.path))
    run(room, repo, "envlog", "capture", "first", "--name", "first")
    (room.seen(repo.path) / "link").unlink()
    before = look(room, repo.path)
    room.run("btrfs", "-q", "subvolume", "snapshot", volume, volume.parent / "copied")
    copied = Repo(volume.parent / "copied/repo", env)
    (room.seen(copied.path) / "many/7").write_bytes(b"changed in the copy")
    now = look(room, copied.path)
    run(room, copied, "envlog", "capture", "second", "--name", "second")
    run(room, copied, "envrestore", "first")
    assert look(room, copied.path)[b"link"].target == b"deep/er/file"
    run(room, copied, "envrestore", "--undo")
    assert look(room, copied.path) == now
    assert look(room, repo.path) == before


def test_restore_to_fails_when_written_paths_are_missing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(TREE, repo.path)
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    taken = history.capture("first").snapshot
    assert taken is not None
    real = write_elsewhere._put_in_place

    def lose_one(*arguments: object) -> object:
        kept = real(*arguments)  # type: ignore[arg-type]
        (tmp_path / "out/many/7").unlink()
        return kept

    monkeypatch.setattr(write_elsewhere, "_put_in_place", lose_one)
    with pytest.raises(EnvhistError, match=r"1 of the paths written into '.*/out' are missing"):
        history.write_to(taken, str(tmp_path / "out"))
