"""Somebody goes on working while a restore runs: what they wrote stays, is told of, and nothing outside is touched."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from git_envhist.restore.finish import abort, apply, finish
from git_envhist.restore.fs import DiskCalls
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.slots import slot_name
from git_envhist.restore.swap import CAME, CHANGED, NOT_EMPTY
from tests.restore.dying import PlainHands
from tests.restore.engine import Engine
from tests.restore.test_killed import BEFORE, Scene
from tests.restore.test_killed import CHANGED as CHANGES
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo
from tests.support.trees import Directory, File, Tree, build

OLD: Tree = {
    b"a/file": File(b"old", mtime_ns=10**18),
    b"a/other": File(b"other", mtime_ns=10**18),
    b"came/back": File(b"back", mtime_ns=10**18),
    b"goes": Directory(),
    b"log": File(b"line 1\n", mtime_ns=10**18),
}


class MeddlingHands(DiskCalls):
    """Lets somebody in right before a call on a name, after it was looked at."""

    def __init__(self, call: str, name: bytes, meddle: Callable[[], object]) -> None:
        self._call, self._name, self._meddle = call, name, meddle

    def exchange(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        self._let_in("exchange", name)
        super().exchange(one, name, other, other_name)
        self._let_in("after exchange", name)

    def move(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        self._let_in("move", name)
        self._let_in("move to", other_name)
        super().move(one, name, other, other_name)

    def _let_in(self, call: str, name: bytes) -> None:
        if (call, name) == (self._call, self._name):
            self._call = ""
            self._meddle()


class MeddlingPlainHands(MeddlingHands, PlainHands):
    """On a file system without an exchange."""


class Desk:
    """An environment at its second moment, on the way back to the first."""

    def __init__(self, top: Path) -> None:
        make_repo(top, commit=False)
        build(OLD, top)
        self.top = top
        self.engine = Engine(top)
        self.first, self.then = self.engine.capture(), self.engine.look()
        (top / "a" / "file").write_bytes(b"new")
        shutil.rmtree(top / "came")
        (top / "goes" / "extra").write_bytes(b"extra")
        (top / "made").mkdir()
        (top / "made" / "later").write_bytes(b"later")
        (top / "log").write_bytes(b"line 1\nline 2\n")
        self.second, self.now = self.engine.capture(), self.engine.look()

    def path(self, name: str) -> Path:
        return self.top / name

    def edit(self, name: str, text: bytes = b"by hand") -> Callable[[], None]:
        return lambda: self._edit(name, text)

    def _edit(self, name: str, text: bytes) -> None:
        self.path(name).parent.mkdir(exist_ok=True)
        self.path(name).write_bytes(text)

    def save_over(self, name: str, text: bytes = b"by hand") -> Callable[[], None]:
        """As editors save: another file is given the name."""
        return lambda: self._save_over(name, text)

    def _save_over(self, name: str, text: bytes) -> None:
        self.path(name + "~").write_bytes(text)
        os.rename(self.path(name + "~"), self.path(name))

    def unlike_the_first(self) -> set[bytes]:
        """Which paths are not as the first moment has them; the directories that hold them aside."""
        found = self.engine.look()
        wrong = {path for path in found.keys() | self.then.keys() if found.get(path) != self.then.get(path)}
        return {path for path in wrong if not any(other.startswith(path + b"/") for other in wrong) and path}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "repo")


@pytest.mark.parametrize("how", ["edit", "save_over"])
def test_a_file_that_is_edited_after_the_plan_stays_and_is_told(desk: Desk, how: str) -> None:
    outcome = desk.engine.restore(desk.second, desk.first, meanwhile=getattr(desk, how)("a/file"))
    assert outcome.skipped == {b"a/file": CHANGED}
    assert desk.path("a/file").read_bytes() == b"by hand"
    assert desk.unlike_the_first() == {b"a/file"}
    assert outcome.differences == ()


@pytest.mark.parametrize("hands", [MeddlingHands, MeddlingPlainHands])
@pytest.mark.parametrize("how", ["edit", "save_over"])
def test_a_file_that_is_edited_in_the_last_moment_stays_as_well(
    desk: Desk, how: str, hands: type[MeddlingHands]
) -> None:
    call = "exchange" if hands is MeddlingHands else "move"
    meddling = hands(call, b"file", getattr(desk, how)("a/file"))
    outcome = desk.engine.restore(desk.second, desk.first, hands=meddling)
    assert outcome.skipped == {b"a/file": CHANGED}
    assert desk.path("a/file").read_bytes() == b"by hand"
    assert desk.unlike_the_first() == {b"a/file"}
    assert outcome.kept == ()


def test_a_file_that_is_edited_and_saved_again_during_the_swap_is_there_twice(desk: Desk) -> None:
    """The first edit was put away when the second came: both are kept."""

    def edit_twice() -> None:
        desk.edit("a/file", b"first")()
        hands._call = "after exchange"
        hands._meddle = desk.save_over("a/file", b"second")

    hands = MeddlingHands("exchange", b"file", edit_twice)
    outcome = desk.engine.restore(desk.second, desk.first, hands=hands)
    assert outcome.skipped == {b"a/file": CHANGED}
    assert desk.path("a/file").read_bytes() == b"second"
    assert [kept.path for kept in outcome.kept] == [b"a/file"]
    assert held(outcome.kept[0].why) == b"first"


def held(place: str) -> bytes:
    return Path(place).read_bytes()


def test_an_edit_that_forges_size_and_time_is_seen_as_well(desk: Desk) -> None:
    def forge() -> None:
        before = os.stat(desk.path("a/file"))
        desk.edit("a/file", b"NEW")()
        os.utime(desk.path("a/file"), ns=(before.st_atime_ns, before.st_mtime_ns))

    outcome = desk.engine.restore(desk.second, desk.first, meanwhile=forge)
    assert outcome.skipped == {b"a/file": CHANGED}
    assert desk.path("a/file").read_bytes() == b"NEW"


def test_an_edit_that_forges_them_before_a_restore_is_finished_is_seen_as_well(desk: Desk) -> None:
    """It was killed, somebody worked, and then it is finished."""
    desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    before = os.stat(desk.path("a/file"))
    desk.edit("a/file", b"NEW")()
    os.utime(desk.path("a/file"), ns=(before.st_atime_ns, before.st_mtime_ns))
    # Whose change time alone moved, by a second name that came and went, is what it was.
    os.link(desk.path("log"), desk.path("log2"))
    desk.path("log2").unlink()
    applied, kept = desk.engine.go_on()
    assert {left.path: left.why for left in applied.skipped} == {b"a/file": CHANGED}
    assert kept == ()
    assert desk.path("a/file").read_bytes() == b"NEW"
    assert desk.unlike_the_first() == {b"a/file"}


def test_what_is_saved_in_the_moment_in_which_a_restore_is_taken_back_stays(desk: Desk) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.door() as door:
        apply(journal, door, fresh=True)
    with desk.engine.door(MeddlingHands("exchange", b"file", desk.save_over("a/file"))) as door:
        applied = abort(journal, door)
        kept = finish(journal, door, desk.engine.private, undone=True)
    assert [left.path for left in applied.skipped] == [b"a/file"]
    assert desk.path("a/file").read_bytes() == b"by hand"
    assert [held(item.why) for item in kept] == [b"new"]


def test_what_comes_where_a_file_should_come_stays(desk: Desk) -> None:
    outcome = desk.engine.restore(desk.second, desk.first, meanwhile=desk.edit("came"[:4] + "/back"))
    assert outcome.skipped == {b"came": CAME}
    assert desk.path("came/back").read_bytes() == b"by hand"


@pytest.mark.parametrize("hands", [MeddlingHands, MeddlingPlainHands])
def test_what_comes_in_the_last_moment_stays(desk: Desk, hands: type[MeddlingHands]) -> None:
    meddling = hands("move to", b"came", desk.edit("came/back"))
    outcome = desk.engine.restore(desk.second, desk.first, hands=meddling)
    assert outcome.skipped == {b"came": CAME}
    assert desk.path("came/back").read_bytes() == b"by hand"


def test_a_directory_into_which_something_comes_stays(desk: Desk) -> None:
    outcome = desk.engine.restore(desk.second, desk.first, meanwhile=desk.edit("made/just now"))
    assert outcome.skipped == {b"made": NOT_EMPTY}
    assert desk.unlike_the_first() == {b"made/just now"}


@pytest.mark.parametrize("hands", [MeddlingHands, MeddlingPlainHands])
def test_a_directory_into_which_something_comes_in_the_last_moment_is_put_back(
    desk: Desk, hands: type[MeddlingHands]
) -> None:
    meddling = hands("move", b"made", desk.edit("made/just now"))
    outcome = desk.engine.restore(desk.second, desk.first, hands=meddling)
    assert outcome.skipped == {b"made": NOT_EMPTY}
    assert desk.unlike_the_first() == {b"made/just now"}


def test_what_is_written_through_an_open_descriptor_is_kept(desk: Desk) -> None:
    with open(desk.path("log"), "ab", buffering=0) as log:
        meddling = MeddlingHands("after exchange", b"log", lambda: None)
        plan = desk.engine.plan(desk.second, desk.first)
        journal, _ = desk.engine.prepare(plan)
        with desk.engine.door(meddling) as door:
            apply(journal, door, fresh=True)
            log.write(b"line 3\n")
            kept = finish(journal, door, desk.engine.private)
    assert desk.engine.look() == desk.then
    assert [item.path for item in kept] == [b"log"]
    assert held(kept[0].why) == b"line 1\nline 2\nline 3\n"


@pytest.mark.parametrize("how", ["edit", "save_over"])
def test_what_is_edited_before_a_restore_is_taken_back_is_not_lost(desk: Desk, how: str) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.door() as door:
        apply(journal, door, fresh=True)
        getattr(desk, how)("a/file")()
        desk.edit("came/more")()
        applied = abort(journal, door)
        kept = finish(journal, door, desk.engine.private, undone=True)
    places = {item.path: item.why for item in kept}
    if how == "edit":
        # It was ours, and they wrote to it: what was there before comes back, and theirs is put aside.
        assert desk.path("a/file").read_bytes() == b"new"
        assert held(places[b"a/file"]) == b"by hand"
    else:
        assert desk.path("a/file").read_bytes() == b"by hand"
        assert held(places[b"a/file"]) == b"new"
        assert b"a/file" in {left.path for left in applied.skipped}
    assert (Path(places[b"came"]) / "more").read_bytes() == b"by hand"


class WritingHands(DiskCalls):
    """Right before a call on a name, somebody who stands in a directory makes a file in it."""

    def __init__(self, call: str, name: bytes, directory: Path) -> None:
        self._call, self._name = call, name
        self._inside = os.open(directory, os.O_RDONLY)

    def rmdir(self, directory: int, name: bytes) -> None:
        self._let_in("rmdir", name)
        super().rmdir(directory, name)

    def unlink(self, directory: int, name: bytes) -> None:
        self._let_in("unlink", name)
        super().unlink(directory, name)

    def _let_in(self, call: str, name: bytes) -> None:
        if (call, name) == (self._call, self._name):
            self._call = ""
            os.close(os.open("just now", os.O_CREAT | os.O_WRONLY, dir_fd=self._inside))


def slot_of(desk: Desk, journal: RestoreJournal, path: bytes) -> bytes:
    (staged,) = (one for one in journal.staged if one.step.path == path)
    return slot_name(staged.slot)


def test_what_comes_into_a_directory_that_is_just_thrown_away_is_kept(desk: Desk) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.door(WritingHands("rmdir", slot_of(desk, journal, b"made"), desk.path("made"))) as door:
        apply(journal, door, fresh=True)
        kept = finish(journal, door, desk.engine.private)
    assert [item.path for item in kept] == [b"made"]
    assert os.listdir(kept[0].why) == ["just now"]
    assert desk.engine.look() == desk.then


def test_what_comes_into_a_directory_that_is_taken_back_just_then_is_kept(desk: Desk) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.door() as door:
        apply(journal, door, fresh=True)
    with desk.engine.door(WritingHands("unlink", b"back", desk.path("came"))) as door:
        abort(journal, door)
        kept = finish(journal, door, desk.engine.private, undone=True)
    assert [item.path for item in kept] == [b"came"]
    assert os.listdir(kept[0].why) == ["just now"]
    assert desk.engine.look() == desk.now


def test_an_edit_that_forges_its_time_in_what_is_taken_back_is_kept(desk: Desk) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.door() as door:
        apply(journal, door, fresh=True)
        before = os.stat(desk.path("came/back"))
        wait_for_a_tick(desk.top)
        desk.edit("came/back", b"BACK")()
        os.utime(desk.path("came/back"), ns=(before.st_atime_ns, before.st_mtime_ns))
        abort(journal, door)
        kept = finish(journal, door, desk.engine.private, undone=True)
    assert [item.path for item in kept] == [b"came"]
    assert (Path(kept[0].why) / "back").read_bytes() == b"BACK"


def wait_for_a_tick(top: Path) -> None:
    """Until the file system's clock has gone on."""
    probe = top.parent / "probe"
    probe.write_bytes(b"")
    began = probe.stat().st_mtime_ns
    while probe.stat().st_mtime_ns == began:
        probe.write_bytes(b"")


def test_what_is_kept_is_on_the_medium_before_the_journal_goes(desk: Desk) -> None:
    events: list[str] = []

    class Noting(DiskCalls):
        def sync(self, descriptor: int) -> None:
            journal = os.path.exists(os.path.join(desk.engine.private, "journal"))
            kept = list(Path(desk.engine.private).rglob("kept/*"))
            events.append(f"synced with {len(kept)} kept, journal {journal}")
            super().sync(descriptor)

    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.door(Noting()) as door, open(desk.path("log"), "ab", buffering=0) as log:
        apply(journal, door, fresh=True)
        log.write(b"line 3\n")
        assert len(finish(journal, door, desk.engine.private)) == 1
    assert events[-1] == "synced with 1 kept, journal True"


OUTSIDE: Tree = {
    **{name: File(b"outside") for name in (b"file", b"more", b"in", b"into", b"into2")},
    b"deep/file": File(b"outside"),
    b"deep": Directory(0o700),
}


class PlantingHands(DiskCalls):
    """Before the n-th change somebody puts a link to somewhere else in a directory's place."""

    def __init__(self, after: int, plant: Callable[[], object]) -> None:
        self.left, self.plant = after, plant

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("exchange", "move", "chmod", "fchmod", "futime", "utime", "unlink", "rmdir"):
            self.left -= 1
            if self.left == 0:
                self.plant()
        return found


@pytest.mark.parametrize("directory", ["gone", "closed", "turns"])
def test_a_link_that_is_planted_between_two_changes_leads_nowhere(tmp_path: Path, directory: str) -> None:
    scene = Scene(tmp_path / "scene", BEFORE, CHANGES)
    planted = 0
    for number in range(1, 60, 7):
        place = tmp_path / f"copy {number}"
        subprocess.run(["cp", "-a", str(scene.engine.top), str(place)], check=True)
        planted += restore_with_planted_link(place, scene, directory, number)
        subprocess.run(["chmod", "-R", "u+rwX", str(place)], check=True)
        shutil.rmtree(place)
    assert planted > 1


def restore_with_planted_link(place: Path, scene: Scene, directory: str, number: int) -> bool:
    engine = Engine(place)
    journal, _ = engine.prepare(engine.plan(scene.first, scene.second))
    outside = place.parent / f"outside {number}"
    build(OUTSIDE, outside)
    canary = listing(outside, top=True)
    seen: list[bytes] = []

    def plant() -> None:
        if (place / directory).is_dir():
            # What is closed to its owner cannot be moved; whoever can move it has opened it.
            os.chmod(place / directory, 0o700)
            os.rename(place / directory, place.parent / f"aside {number}")
            os.symlink(outside, place / directory)
            seen.append(b"planted")

    with engine.door(PlantingHands(number, plant)) as door:
        apply(journal, door, fresh=True)
        finish(journal, door, engine.private)
    assert listing(outside, top=True) == canary
    return bool(seen)


def test_a_hard_link_to_somewhere_else_is_not_written_through(tmp_path: Path, repo: Repo) -> None:
    store = tmp_path / "store"
    store.write_bytes(b"package")
    os.link(store, repo.path / "package")
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.look()
    os.unlink(repo.path / "package")
    (repo.path / "package").write_bytes(b"changed")
    second = engine.capture()
    engine.restore(second, first)
    assert engine.look().keys() == then.keys()
    assert (repo.path / "package").read_bytes() == b"package"
    (repo.path / "package").write_bytes(b"written to")
    assert store.read_bytes() == b"package"


@pytest.mark.parametrize("change", ["content", "mode"])
def test_what_else_has_the_file_keeps_it_as_it_is(tmp_path: Path, repo: Repo, change: str) -> None:
    (repo.path / "package").write_bytes(b"package")
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.look()
    (repo.path / "package").chmod(0o600)
    if change == "content":
        (repo.path / "package").write_bytes(b"changed")
    os.link(repo.path / "package", tmp_path / "store")
    second = engine.capture()
    seen = os.stat(tmp_path / "store")
    outcome = engine.restore(second, first)
    assert engine.look() == then
    assert outcome.differences == ()
    found = os.stat(tmp_path / "store")
    assert (found.st_mode, found.st_mtime_ns, found.st_size) == (seen.st_mode, seen.st_mtime_ns, seen.st_size)


def test_a_running_program_and_a_mapped_file_go_on_as_they_were(repo: Repo) -> None:
    program = repo.path / "program"
    shutil.copy(
        sys.executable if not os.path.islink(sys.executable) else os.path.realpath(sys.executable), program
    )
    data = repo.write("data", b"first" * 1000)
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.look()
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    data.write_bytes(b"other" * 1000)
    second = engine.capture()
    with open(data, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        running = subprocess.Popen([str(program), "60"])
        try:
            outcome = engine.restore(second, first)
            assert engine.look() == then
            assert running.poll() is None
            assert mapped[:5] == b"other"
            assert outcome.skipped == {}
        finally:
            running.kill()
            running.wait()


def test_what_somebody_writes_through_a_mapping_and_no_time_tells_of_is_kept(tmp_path: Path) -> None:
    top = tmp_path / "repo"
    make_repo(top, commit=False)
    file = top / "mapped"
    build({b"mapped": File(b"old", mtime_ns=10**18)}, top)
    engine = Engine(top)
    first = engine.capture()
    file.write_bytes(b"new" * 2000)
    with open(file, "r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        second = engine.capture()

        def write() -> None:
            # A page that was dirty already leaves no trace; here it may have been written meanwhile.
            seen = os.stat(opened.fileno())
            mapped[:3] = b"NEW"
            os.utime(opened.fileno(), ns=(seen.st_atime_ns, seen.st_mtime_ns))

        hands = MeddlingHands("after exchange", b"mapped", write)
        outcome = engine.restore(second, first, hands=hands)
    assert file.read_bytes() == b"old"
    (kept,) = outcome.kept
    assert kept.path == b"mapped"
    assert (Path(engine.private) / kept.why).read_bytes()[:6] == b"NEWnew"
