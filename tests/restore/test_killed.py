"""A restore killed before any of its changes can be continued or aborted, and leaves no files behind."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.restore.apply_journal import apply, discard, finish
from git_envhist.restore.journal import Phase, read_journal, read_phase
from tests.restore.engine import Engine
from tests.restore.killed_calls import Dead, DyingCalls, DyingLinklessCalls, DyingPlainCalls
from tests.restore.test_round_trip import CHANGES
from tests.support.depth import examples
from tests.support.oracle import Listing
from tests.support.privileges import permissions_bind
from tests.support.repository import make_repo
from tests.support.trees import (
    Chmod,
    Directory,
    Edit,
    Fifo,
    File,
    HardLink,
    Link,
    Put,
    Remove,
    Touch,
    Tree,
    build,
)
from tests.support.trees import apply as edit

T1, T2 = 1_600_000_000_000_000_001, 1_700_000_000_000_000_002

BEFORE: Tree = {
    b"": Directory(mtime_ns=T1),
    b"same": File(b"same", mtime_ns=T1),
    b"edited": File(b"one", 0o640, T1),
    b"touched": File(b"touched", 0o644, T1),
    b"gone/deep/file": File(b"file", mtime_ns=T1),
    b"gone/deep": Directory(0o555, T1),
    b"gone": Directory(0o755, T1),
    b"turns": File(b"a file", mtime_ns=T1),
    b"folds/in": File(b"in", mtime_ns=T1),
    b"folds": Directory(0o700, T1),
    b"link": Link(b"/etc/passwd", T1),
    b"pair": File(b"pair", mtime_ns=T1),
    b"twin": HardLink(b"pair"),
    b"closed/file": File(b"1", 0o444, T1),
    b"closed": Directory(0o555, T1),
    b"pipe": Fifo(0o600, T1),
    b"data.db": File(b"db 1", mtime_ns=T1),
    b"data.db-wal": File(b"wal 1", mtime_ns=T1),
}
CHANGED: tuple[Edit, ...] = (
    Put(b"edited", File(b"two", 0o755, T2)),
    Put(b"touched", File(b"touched", 0o600, T2)),
    Chmod(b"gone/deep", 0o755),
    Remove(b"gone"),
    Put(b"turns", Directory()),
    Put(b"turns/into", File(b"a directory", mtime_ns=T2)),
    Put(b"turns/into2", HardLink(b"turns/into")),
    Put(b"folds", File(b"folded", mtime_ns=T2)),
    Put(b"link", Link(b"elsewhere", T2)),
    Remove(b"twin"),
    Put(b"twin", File(b"alone", mtime_ns=T2)),
    Chmod(b"closed", 0o755),
    Put(b"closed/file", File(b"2", 0o400, T2)),
    Put(b"closed/more", File(b"more", mtime_ns=T2)),
    Chmod(b"closed", 0o500),
    Touch(b"closed", T2),
    Remove(b"pipe"),
    Put(b"new", Directory(0o750, T2)),
    Put(b"new/below", Directory(0o555, T2)),
    Put(b"data.db", File(b"db 2", mtime_ns=T2)),
    Put(b"data.db-wal", File(b"wal 2", mtime_ns=T2)),
)


class Scene:
    """An environment at the first of its two snapshots."""

    def __init__(self, top: Path, tree: Tree, changes: tuple[Edit, ...]) -> None:
        make_repo(top, commit=False)
        build(tree, top)
        self.engine = Engine(top)
        self.first, self.then = self.engine.capture(), self.engine.list_files()
        edit(changes, top)
        self.second, self.now = self.engine.capture(), self.engine.list_files()
        self.return_to_first()

    def return_to_first(self) -> None:
        self.engine.restore(self.second, self.first)
        assert self.engine.list_files() == self.then

    def run(self, calls: DyingCalls) -> bool:
        """Restore the second snapshot with these calls; return False if they raised `Dead`."""
        engine = self.engine
        try:
            with engine.disk() as disk:
                discard(disk)
            journal, _ = engine.prepare(engine.plan(self.first, self.second), calls)
            with engine.disk(calls) as disk:
                apply(journal, disk, fresh=True)
                finish(journal, disk, engine.private)
        except Dead:
            return False
        return True

    def recover(self, calls: DyingCalls, *, forwards: bool) -> None:
        """Run the recovery of the next command; it may be killed as well."""
        engine = self.engine
        journal = read_journal(engine.private)
        if journal is None:
            with engine.disk(calls) as disk:
                discard(disk)
            return
        phase = read_phase(engine.private)
        if phase is not Phase.APPLYING:
            with engine.disk(calls) as disk:
                finish(journal, disk, engine.private, undone=phase is Phase.UNDONE)
        elif forwards:
            engine.continue_restore(calls)
        else:
            engine.abort_restore(calls)

    def judge(self, *, forwards: bool | None) -> Listing:
        """Check that the environment equals one of the snapshots, and nothing of the restore is left."""
        found = self.engine.list_files()
        if forwards is None:
            assert found in (self.then, self.now)
        else:
            assert found == (self.now if forwards else self.then)
        assert self.engine.debris() == []
        return found


FOREVER = 1 << 30
KINDS = (DyingCalls, DyingPlainCalls, DyingLinklessCalls)


def deaths(scene: Scene, kind: type[DyingCalls], step: int, first: int = 0) -> Iterator[tuple[int, bool]]:
    """Kill a restore before every `step`-th change; yield the change, and whether the journal existed."""
    for number in range(first, FOREVER, step):
        if scene.run(kind(number)):
            scene.judge(forwards=True)
            scene.engine.restore(scene.second, scene.first)
            return
        begun = read_journal(scene.engine.private) is not None
        yield number, begun
        if scene.engine.list_files() == scene.now:
            scene.engine.restore(scene.second, scene.first)


@pytest.mark.parametrize(
    ("kind", "step"),
    [(DyingCalls, 1), (DyingPlainCalls, 5), (DyingLinklessCalls, 7)],
    ids=("every change", "without an exchange", "without links"),
)
def test_killed_restore_is_continued_or_aborted(tmp_path: Path, kind: type[DyingCalls], step: int) -> None:
    scene = Scene(tmp_path / "repo", BEFORE, CHANGED)
    for turn, (_, begun) in enumerate(deaths(scene, kind, step)):
        done = begun and read_phase(scene.engine.private) is Phase.DONE
        scene.recover(kind(FOREVER), forwards=bool(turn % 2))
        scene.judge(forwards=begun and (done or bool(turn % 2)))


def test_killed_restore_of_an_ordinary_user_is_continued_or_aborted(tmp_path: Path) -> None:
    with permissions_bind():
        scene = Scene(tmp_path / "repo", BEFORE, CHANGED)
        for turn, (_, begun) in enumerate(deaths(scene, DyingCalls, 6)):
            done = begun and read_phase(scene.engine.private) is Phase.DONE
            scene.recover(DyingCalls(FOREVER), forwards=bool(turn % 2))
            scene.judge(forwards=begun and (done or bool(turn % 2)))


def test_recovery_can_be_killed_repeatedly(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "repo", BEFORE, CHANGED)
    chance = random.Random(7)
    for _ in deaths(scene, DyingCalls, 7, first=3):
        die_while_recovering(scene, chance)


def die_while_recovering(scene: Scene, chance: random.Random) -> None:
    for _ in range(2):
        try:
            scene.recover(DyingCalls(chance.randrange(60)), forwards=chance.random() < 0.5)
        except Dead:
            continue
        scene.judge(forwards=None)
        return
    # A recovery that has started its cleanup ignores the direction.
    scene.recover(DyingCalls(FOREVER), forwards=chance.random() < 0.5)
    scene.judge(forwards=None)


@given(CHANGES, st.integers(0, 2**32))
@settings(max_examples=examples(2, 6))
def test_random_restores_survive_a_kill_anywhere(
    tmp_path_factory: pytest.TempPathFactory, change: tuple[Tree, tuple[Edit, ...]], seed: int
) -> None:
    scene = Scene(tmp_path_factory.mktemp("any") / "repo", *change)
    chance = random.Random(seed)
    for _ in range(4):
        if scene.engine.list_files() != scene.then:
            scene.return_to_first()
        if not scene.run(chance.choice(KINDS)(chance.randrange(40))):
            die_while_recovering(scene, chance)


@pytest.mark.parametrize("instead", [b"../../", b"folded"])
def test_manipulated_journal_moves_nothing(tmp_path: Path, instead: bytes) -> None:
    scene = Scene(tmp_path / "repo", BEFORE, CHANGED)
    assert not scene.run(DyingCalls(90))
    place = os.path.join(scene.engine.private, "journal")
    seen = scene.engine.list_files()
    with open(place, "r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(data.replace(b"edited", instead, 1))
    with pytest.raises(Damaged):
        scene.recover(DyingCalls(FOREVER), forwards=True)
    assert scene.engine.list_files() == seen
