"""A whole moment in an empty directory: all of it, or nothing but what the next one throws away."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from git_envhist.errors import EnvhistError, Refused
from git_envhist.model import PlanAction
from git_envhist.restore.fs import DiskCalls
from git_envhist.restore.plan import PRIVATE, make_plan
from git_envhist.restore.write_tree import (
    FillResult,
    PlanSource,
    SnapshotSource,
    Source,
    fill_directory,
    is_taken,
    write_elsewhere,
)
from tests.restore.dying import Dead, DyingHands, DyingPlainHands
from tests.restore.engine import Engine, in_small_helpings
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
    """An environment with a bit of everything, and its moment."""

    def __init__(self, top: Path) -> None:
        make_repo(top, commit=False)
        build(TREE, top)
        subprocess.run(["git", "init", "-q", str(top / "nested")], check=True)
        self.engine = Engine(top)
        self.moment, self.then = self.engine.capture(), self.engine.look()

    def source(self) -> SnapshotSource:
        return SnapshotSource(self.engine.contents(), self.moment.tree)

    def fill(self, there: Path, *, hands: DiskCalls | None = None, how: str = "here") -> FillResult:
        there.mkdir(exist_ok=True)
        return fill_directory(os.fsencode(there), self.source(), self.engine.contents, hands=hands, how=how)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("anew") / "repo")


def seen(there: Path) -> Listing:
    return listing(os.fsdecode(there), top=True)


@pytest.mark.parametrize("how", ["fork", "here"])
def test_everything_comes_as_it_was(scene: Scene, tmp_path: Path, how: str) -> None:
    filled = scene.fill(tmp_path / "there", how=how)
    assert seen(tmp_path / "there") == scene.then
    assert (filled.kept, filled.losses, filled.skipped) == ((), (), ())
    assert filled.written == len(scene.then) - 1
    assert (tmp_path / "there" / "holes").stat().st_blocks * 512 < 400_000


def test_in_however_small_helpings_everything_comes(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        in_small_helpings(patch)
        filled = scene.fill(tmp_path / "there")
    assert seen(tmp_path / "there") == scene.then
    assert (filled.kept, filled.losses, filled.skipped) == ((), (), ())


def test_a_plan_is_written_as_the_snapshot_is(scene: Scene, tmp_path: Path) -> None:
    plan = make_plan(scene.engine.pairs(None, scene.moment))
    top = next(own.after for own in plan.directories if not own.path)
    assert top is not None
    (tmp_path / "there").mkdir()
    fill_directory(os.fsencode(tmp_path / "there"), PlanSource(plan, top), scene.engine.contents, how="fork")
    assert seen(tmp_path / "there") == scene.then


def test_what_is_told_afterwards_is_what_a_plan_would_have_said(scene: Scene, tmp_path: Path) -> None:
    repository = scene.engine.history.repository
    moment = scene.engine.history.resolve(scene.moment.id)
    source = Source(repository.git, repository.state, lambda made: scene.engine.contents(), "fork")
    told = write_elsewhere(moment, str(tmp_path / "there"), source)
    wanted = make_plan(scene.engine.pairs(None, scene.moment))
    assert told.plan.counts == wanted.counts
    assert told.verified == told.plan.counts[PlanAction.WRITE]
    for mine, theirs in zip(told.plan.steps, wanted.steps, strict=True):
        assert (mine.path, mine.action, mine.after) == (theirs.path, theirs.action, theirs.after)
        assert len(mine.below) == len(theirs.below)
        assert set(mine.below) == set(theirs.below)
    assert set(told.plan.directories) == set(wanted.directories)


@pytest.mark.parametrize("kind", [DyingHands, DyingPlainHands])
def test_whatever_it_dies_of_it_is_begun_again(tmp_path: Path, kind: type[DyingHands]) -> None:
    make_repo(tmp_path / "repo", commit=False)
    build(BEFORE, tmp_path / "repo")
    engine = Engine(tmp_path / "repo")
    moment, then = engine.capture(), engine.look()
    there = tmp_path / "there"
    there.mkdir()

    def write(hands: DiskCalls | None) -> None:
        source = SnapshotSource(engine.contents(), moment.tree)
        fill_directory(os.fsencode(there), source, engine.contents, hands=hands, how="here")

    died = 0
    for number in range(0, 1 << 20, 7):
        try:
            write(kind(number))
            break
        except Dead:
            died += 1
        if is_taken(str(there)):
            # Its last steps: the names are given, from a directory in which all is whole.
            assert (there / os.fsdecode(PRIVATE)).exists() or seen(there).keys() == then.keys()
            for name in os.listdir(there):
                # What is closed to its owner is opened first: permission bits do not bind root alone.
                subprocess.run(["chmod", "-R", "u+rwx", str(there / name)], check=False)
                subprocess.run(["rm", "-rf", str(there / name)], check=True)
            continue
        assert set(os.listdir(there)) <= {os.fsdecode(PRIVATE)}
    assert died > 8
    assert seen(there) == then


class Forgetful(DiskCalls):
    """A disk that keeps other bytes than those it was given."""

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        super().write(descriptor, data.replace(b"4321", b"4320"), offset)


@pytest.mark.parametrize("how", ["fork", "here"])
def test_a_byte_that_the_disk_changes_is_seen_and_nothing_stays(
    scene: Scene, tmp_path: Path, how: str
) -> None:
    with pytest.raises(EnvhistError, match="what was written is not what the snapshot holds: 'many/4321'"):
        scene.fill(tmp_path / "there", hands=Forgetful(), how=how)
    assert os.listdir(tmp_path / "there") == []


def test_two_do_not_fill_one_directory(scene: Scene, tmp_path: Path) -> None:
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
    """Somebody puts a file where an entry is to stand, in the last moment."""

    def move(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        if name == b"same":
            os.close(os.open(b"same", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=other))
        super().move(one, name, other, other_name)


def test_what_somebody_put_there_meanwhile_stays(scene: Scene, tmp_path: Path) -> None:
    there = tmp_path / "there"
    filled = scene.fill(there, hands=Crowded())
    assert [item.path for item in filled.kept] == [b"same"]
    assert (there / "same").read_bytes() == b""
    assert (there / "edited").read_bytes() == b"one"
    assert not (there / os.fsdecode(PRIVATE)).exists()
    assert filled.written == len(scene.then) - 2
