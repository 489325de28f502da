"""Mounts inside the environment: a restore that would change one is refused and names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.errors import Refused
from git_envhist.model import EnvPath, MissingPath, MissingReason, RestorePlan, SkippedPath
from git_envhist.platform import WITHOUT
from git_envhist.restore.guards import refuse_mounted
from git_envhist.restore.plan_steps import SkipReason
from tests.support.mounts import Room, private_mounts
from tests.support.repository import Repo, Result
from tests.support.trees import File, build


@pytest.fixture
def room() -> Iterator[Room]:
    with private_mounts() as there:
        yield there


@pytest.fixture(params=["bind", "tmpfs"])
def kind(request: pytest.FixtureRequest, repo: Repo) -> str:
    """Return the kind of mount. The system's list of mounts is hidden for tmpfs, so that the device number must do."""
    kind: str = request.param
    if kind == "tmpfs":
        repo.env[WITHOUT] = "proc"
    return kind


def mount(room: Room, kind: str, place: Path) -> Path:
    """Mount a directory with a file; return the path of the file."""
    if kind == "tmpfs":
        room.mount("-t", "tmpfs", "tmpfs", place)
    else:
        volume = place.parents[1] / "volume"
        volume.mkdir()
        room.mount("--bind", volume, place)
    file = room.seen(place) / "file"
    file.write_bytes(b"mounted")
    return file


def restore(room: Room, repo: Repo, *words: str) -> Result:
    return repo.run("envrestore", *words, prefix=room.inside(repo.path), check=False)


def begin(room: Room, repo: Repo) -> str:
    build({b"deps/data/covered": File(b"1"), b"deps/beside": File(b"2"), b"a": File(b"3")}, repo.path)
    return room.capture(repo).out.strip()


def refused(done: Result, name: str) -> None:
    assert done.status == 3
    assert f"'{name}' is a mount point" in done.err
    assert "--force" in done.err


def test_mount_that_hides_snapshot_paths_is_refused_and_skipped_with_force(
    repo: Repo, room: Room, kind: str
) -> None:
    before = begin(room, repo)
    file = mount(room, kind, repo.path / "deps/data")
    # The mount alone is enough for a refusal, also if nothing else differs.
    refused(restore(room, repo, before), "deps/data")
    assert "would be refused" in restore(room, repo, "-n", before).err
    repo.write("a", b"changed")
    refused(restore(room, repo, before), "deps/data")
    assert repo.read("a") == b"changed"
    assert "would be refused" in restore(room, repo, "-n", before).err

    assert restore(room, repo, before, "--", "a").status == 0
    assert repo.read("a") == b"3"
    repo.write("a", b"changed")
    forced = restore(room, repo, "--force", before)
    assert (forced.status, "deps/data" in forced.err) == (5, True)
    assert repo.read("a") == b"3"
    assert file.read_bytes() == b"mounted"
    room.umount(repo.path / "deps/data")
    assert repo.read("deps/data/covered") == b"1"


@pytest.mark.parametrize("comes", ["nothing", "a file"])
def test_directory_with_a_mount_is_not_removed(repo: Repo, room: Room, kind: str, comes: str) -> None:
    build({b"a": File(b"3"), **({b"new": File(b"4")} if comes == "a file" else {})}, repo.path)
    before = room.capture(repo).out.strip()
    (repo.path / "new").unlink(missing_ok=True)
    build({b"new/in/mnt/covered": File(b"1"), b"new/in/x": File(b"2")}, repo.path)
    file = mount(room, kind, repo.path / "new/in/mnt")
    refused(restore(room, repo, before), "new/in/mnt")
    assert repo.read("new/in/x") == b"2"

    planned = restore(room, repo, "-n", "--force", before).out
    forced = restore(room, repo, "--force", before)
    assert forced.status == 5
    assert "'new/in': contains a mount point" in forced.err
    assert ("new/in/x" in planned, "\n    new/in\n" in planned) == (True, False)
    assert file.read_bytes() == b"mounted"
    room.umount(repo.path / "new/in/mnt")
    assert repo.read("new/in/mnt/covered") == b"1"
    assert restore(room, repo, before).status == 0
    assert not (repo.path / "new/in").exists()


def test_mount_that_existed_at_the_capture_is_not_refused(repo: Repo, room: Room, kind: str) -> None:
    build({b"deps/data/covered": File(b"1"), b"a": File(b"3")}, repo.path)
    file = mount(room, kind, repo.path / "deps/data")
    before = room.capture(repo).out.strip()
    repo.write("a", b"changed")
    assert restore(room, repo, before).status == 0
    assert (repo.read("a"), file.read_bytes()) == (b"3", b"mounted")


@pytest.mark.parametrize("how", ["bind", "tmpfs"])
def test_captured_mount_is_not_restored(repo: Repo, room: Room, tmp_path: Path, how: str) -> None:
    repo.git("config", "envhist.crossMounts", "true")
    build({b"deps/data/covered": File(b"1"), b"a": File(b"3")}, repo.path)
    volume = tmp_path / "volume"
    volume.mkdir()
    source = ("--bind", volume) if how == "bind" else ("-t", "tmpfs", "tmpfs")
    room.mount(*source, repo.path / "deps/data")
    file = room.seen(repo.path / "deps/data") / "file"
    file.write_bytes(b"mounted")
    before = room.capture(repo).out.strip()
    repo.write("a", b"changed")
    assert restore(room, repo, before).status == 0, "the contents of the mount did not change"
    assert repo.read("a") == b"3"

    file.write_bytes(b"other bytes")
    repo.write("a", b"changed")
    done = restore(room, repo, before)
    refused(done, "deps/data")
    assert "--to" in done.err
    assert (repo.read("a"), file.read_bytes()) == (b"changed", b"other bytes")
    assert "would be refused" in restore(room, repo, "-n", before).err
    forced = restore(room, repo, "--force", before)
    assert (forced.status, "deps/data" in forced.err) == (5, True)
    assert (repo.read("a"), file.read_bytes()) == (b"3", b"other bytes")
    elsewhere = tmp_path / "elsewhere"
    assert restore(room, repo, "--to", str(elsewhere), before).status == 0
    assert (elsewhere / "deps/data/file").read_bytes() == b"mounted"


def test_number_of_further_mounts_is_reported() -> None:
    missing = [MissingPath(EnvPath(path), MissingReason.MOUNT) for path in (b"b", b"a/c", b"z")]
    left = [SkippedPath(EnvPath(path), SkipReason.MOUNTED) for path in (b"b", b"b/inner", b"a/c/d", b"then")]
    with pytest.raises(Refused, match=r"'a/c' is a mount point and .*; 1 more are, too"):
        refuse_mounted(RestorePlan((), (), tuple(left)), missing)
    refuse_mounted(RestorePlan((), (), (SkippedPath(EnvPath(b"then"), SkipReason.MOUNTED),)), missing)
