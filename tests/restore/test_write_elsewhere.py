"""A snapshot written into an empty directory: it is complete, or the next restore removes the leftovers."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from git_envhist.errors import EnvhistError, Refused
from git_envhist.model import PlanAction
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.plan_steps import PRIVATE, make_plan
from git_envhist.restore.write_elsewhere import (
    FillResult,
    PlanSource,
    SnapshotSource,
    SourceRepository,
    fill_directory,
    is_occupied,
    write_elsewhere,
)
from tests.restore.engine import Engine, transfer_few_bytes
from tests.restore.killed_calls import Dead, DyingCalls, DyingPlainCalls
from tests.restore.test_killed import BEFORE
from tests.support.oracle import Listing, listing
from tests.support.repository import make_repo
from tests.support.trees import Directory, File, HardLink, Tree, build

DEEP = b"/".join([b"d"] * 90)
OLD = 1_500_000_000_000_000_003
TREE: Tree = {
    **BEFORE,
    b"empty/of/all": Directory(0o711, OLD),
    b"empty/of": Directory(0o755, OLD),
    b"empty": Directory(0o700, OLD),
    DEEP + b"/file": File(b"deep", mtime_ns=OLD),
    b".env": File(b"PASSWORD=correct-horse-3\n", 0o600, OLD),
    b"odd/a\nb": File(b"odd", 0o4755, OLD),
    b"odd/.gitattributes": File(b"* text\n", mtime_ns=OLD),
    b"odd/other": HardLink(b"pair"),
    b"holes": File(b"x" + bytes(300_000) + b"y" + bytes(200_000), mtime_ns=OLD),
    b"big": File(os.urandom(1 << 20) * 9, 0o640, OLD),
    b"none": File(b"", mtime_ns=OLD),
    **{b"many/%d" % number: File(b"%d" % number, mtime_ns=OLD) for number in range(5000)},
}


class Scene:
    """An environment with every kind of entry, and its snapshot."""

    def __init__(self, top: Path) -> None:
        make_repo(top, commit=False)
        build(TREE, top)
        subprocess.run(["git", "init", "-q", str(top / "nested")], check=True)
        self.engine = Engine(top)
        self.moment, self.then = self.engine.capture(), self.engine.list_files()

    def source(self) -> SnapshotSource:
        return SnapshotSource(self.engine.contents(), self.moment.tree)

    def fill(self, there: Path, *, calls: DiskCalls | None = None, how: str = "here") -> FillResult:
        there.mkdir(exist_ok=True)
        return fill_directory(os.fsencode(there), self.source(), self.engine.contents, calls=calls, how=how)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("anew") / "repo")


def seen(there: Path) -> Listing:
    return listing(os.fsdecode(there), top=True)


@pytest.mark.parametrize("how", ["fork", "here"])
def test_whole_snapshot_is_written_exactly(scene: Scene, tmp_path: Path, how: str) -> None:
    filled = scene.fill(tmp_path / "there", how=how)
    assert seen(tmp_path / "there") == scene.then
    assert (filled.existing, filled.losses, filled.skipped) == ((), (), ())
    assert filled.written == len(scene.then) - 1
    assert (tmp_path / "there" / "holes").stat().st_blocks * 512 < 400_000


def test_whole_snapshot_is_written_when_calls_transfer_few_bytes(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        transfer_few_bytes(patch)
        filled = scene.fill(tmp_path / "there")
    assert seen(tmp_path / "there") == scene.then
    assert (filled.existing, filled.losses, filled.skipped) == ((), (), ())


def test_plan_is_written_like_a_snapshot(scene: Scene, tmp_path: Path) -> None:
    plan = make_plan(scene.engine.pairs(None, scene.moment))
    top = next(own.after for own in plan.directories if not own.path)
    assert top is not None
    (tmp_path / "there").mkdir()
    fill_directory(os.fsencode(tmp_path / "there"), PlanSource(plan, top), scene.engine.contents, how="fork")
    assert seen(tmp_path / "there") == scene.then


def test_plan_reported_afterwards_equals_a_plan_made_before(scene: Scene, tmp_path: Path) -> None:
    repository = scene.engine.history.repository
    moment = scene.engine.history.resolve(scene.moment.id)
    source = SourceRepository(
        repository.git, repository.state, lambda _, verify: scene.engine.contents(verify), "fork"
    )
    told = write_elsewhere(moment, str(tmp_path / "there"), source)
    wanted = make_plan(scene.engine.pairs(None, scene.moment))
    assert told.plan.counts == wanted.counts
    assert told.verified == told.plan.counts[PlanAction.WRITE]
    for mine, theirs in zip(told.plan.steps, wanted.steps, strict=True):
        assert (mine.path, mine.action, mine.after) == (theirs.path, theirs.action, theirs.after)
        assert len(mine.below) == len(theirs.below)
        assert set(mine.below) == set(theirs.below)
    assert set(told.plan.directories) == set(wanted.directories)


@pytest.mark.parametrize("kind", [DyingCalls, DyingPlainCalls])
def test_write_starts_again_after_a_kill_at_any_change(tmp_path: Path, kind: type[DyingCalls]) -> None:
    make_repo(tmp_path / "repo", commit=False)
    build(BEFORE, tmp_path / "repo")
    engine = Engine(tmp_path / "repo")
    moment, then = engine.capture(), engine.list_files()
    there = tmp_path / "there"
    there.mkdir()

    def write(calls: DiskCalls | None) -> None:
        source = SnapshotSource(engine.contents(), moment.tree)
        fill_directory(os.fsencode(there), source, engine.contents, calls=calls, how="here")

    died = 0
    for number in range(0, 1 << 20, 7):
        try:
            write(kind(number))
            break
        except Dead:
            died += 1
        if is_occupied(str(there)):
            # The kill came between the last renames, which put complete entries into place.
            assert (there / os.fsdecode(PRIVATE)).exists() or seen(there).keys() == then.keys()
            for name in os.listdir(there):
                # An ordinary user must add permissions before rm can enter the directories.
                subprocess.run(["chmod", "-R", "u+rwx", str(there / name)], check=False)
                subprocess.run(["rm", "-rf", str(there / name)], check=True)
            continue
        assert set(os.listdir(there)) <= {os.fsdecode(PRIVATE)}
    assert died > 8
    assert seen(there) == then


class Forgetful(DiskCalls):
    """A disk that stores wrong bytes."""

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        super().write(descriptor, data.replace(b"4321", b"4320"), offset)


@pytest.mark.parametrize("how", ["fork", "here"])
def test_byte_changed_by_the_disk_is_detected_and_nothing_is_left(
    scene: Scene, tmp_path: Path, how: str
) -> None:
    with pytest.raises(EnvhistError, match="written contents differ from the snapshot: 'many/4321'"):
        scene.fill(tmp_path / "there", calls=Forgetful(), how=how)
    assert os.listdir(tmp_path / "there") == []


def test_two_restores_do_not_fill_one_directory(scene: Scene, tmp_path: Path) -> None:
    there = tmp_path / "there"
    theirs = there / os.fsdecode(PRIVATE) / "new" / "theirs"
    theirs.parent.mkdir(parents=True, mode=0o700)
    theirs.write_text("half")
    held = os.open(there / os.fsdecode(PRIVATE), os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Refused):
            scene.fill(there)
        assert theirs.read_text() == "half"
    finally:
        os.close(held)
    scene.fill(there)
    assert seen(there) == scene.then


class Crowded(DiskCalls):
    """Simulate another process that creates a file right before the restore moves an entry to its path."""

    def move(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        if name == b"same":
            os.close(os.open(b"same", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=other))
        super().move(one, name, other, other_name)


def test_file_created_by_another_process_is_kept(scene: Scene, tmp_path: Path) -> None:
    there = tmp_path / "there"
    filled = scene.fill(there, calls=Crowded())
    assert [item.path for item in filled.existing] == [b"same"]
    assert (there / "same").read_bytes() == b""
    assert (there / "edited").read_bytes() == b"one"
    assert not (there / os.fsdecode(PRIVATE)).exists()
    assert filled.written == len(scene.then) - 2
