"""Concurrent changes during a restore are kept and reported, and nothing outside is touched."""

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

from git_envhist.restore.apply_journal import abort, apply, finish
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.slots import slot_name
from git_envhist.restore.swap import CHANGED, CREATED, NOT_EMPTY
from tests.restore.engine import Engine
from tests.restore.killed_calls import PlainCalls
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


class MeddlingCalls(DiskCalls):
    """Change a file right before a call on a name, after the restore has checked it."""

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


class MeddlingPlainCalls(MeddlingCalls, PlainCalls):
    """The same on a file system without atomic exchange."""


class Desk:
    """An environment at its second snapshot; the tests restore the first."""

    def __init__(self, top: Path) -> None:
        make_repo(top, commit=False)
        build(OLD, top)
        self.top = top
        self.engine = Engine(top)
        self.first, self.then = self.engine.capture(), self.engine.list_files()
        (top / "a" / "file").write_bytes(b"new")
        shutil.rmtree(top / "came")
        (top / "goes" / "extra").write_bytes(b"extra")
        (top / "made").mkdir()
        (top / "made" / "later").write_bytes(b"later")
        (top / "log").write_bytes(b"line 1\nline 2\n")
        self.second, self.now = self.engine.capture(), self.engine.list_files()

    def path(self, name: str) -> Path:
        return self.top / name

    def edit(self, name: str, text: bytes = b"by hand") -> Callable[[], None]:
        return lambda: self._edit(name, text)

    def _edit(self, name: str, text: bytes) -> None:
        self.path(name).parent.mkdir(exist_ok=True)
        self.path(name).write_bytes(text)

    def save_over(self, name: str, text: bytes = b"by hand") -> Callable[[], None]:
        """Save as editors do: write a temporary file and rename it over the old one."""
        return lambda: self._save_over(name, text)

    def _save_over(self, name: str, text: bytes) -> None:
        self.path(name + "~").write_bytes(text)
        os.rename(self.path(name + "~"), self.path(name))

    def unlike_the_first(self) -> set[bytes]:
        """Return the paths that differ from the first snapshot, without the directories above them."""
        found = self.engine.list_files()
        wrong = {path for path in found.keys() | self.then.keys() if found.get(path) != self.then.get(path)}
        return {path for path in wrong if not any(other.startswith(path + b"/") for other in wrong) and path}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "repo")


@pytest.mark.parametrize("how", ["edit", "save_over"])
def test_file_edited_after_the_plan_is_kept_and_reported(desk: Desk, how: str) -> None:
    outcome = desk.engine.restore(desk.second, desk.first, meanwhile=getattr(desk, how)("a/file"))
    assert outcome.skipped == {b"a/file": CHANGED}
    assert desk.path("a/file").read_bytes() == b"by hand"
    assert desk.unlike_the_first() == {b"a/file"}
    assert outcome.differences == ()


@pytest.mark.parametrize("calls", [MeddlingCalls, MeddlingPlainCalls])
@pytest.mark.parametrize("how", ["edit", "save_over"])
def test_file_edited_right_before_the_swap_is_kept(desk: Desk, how: str, calls: type[MeddlingCalls]) -> None:
    call = "exchange" if calls is MeddlingCalls else "move"
    meddling = calls(call, b"file", getattr(desk, how)("a/file"))
    outcome = desk.engine.restore(desk.second, desk.first, calls=meddling)
    assert outcome.skipped == {b"a/file": CHANGED}
    assert desk.path("a/file").read_bytes() == b"by hand"
    assert desk.unlike_the_first() == {b"a/file"}
    assert outcome.kept == ()


def test_file_edited_and_saved_again_during_the_swap_is_kept_twice(desk: Desk) -> None:
    """The first edit was already swapped out when the second came: both are kept."""

    def edit_twice() -> None:
        desk.edit("a/file", b"first")()
        calls._call = "after exchange"
        calls._meddle = desk.save_over("a/file", b"second")

    calls = MeddlingCalls("exchange", b"file", edit_twice)
    outcome = desk.engine.restore(desk.second, desk.first, calls=calls)
    assert outcome.skipped == {b"a/file": CHANGED}
    assert desk.path("a/file").read_bytes() == b"second"
    assert [kept.path for kept in outcome.kept] == [b"a/file"]
    assert held(outcome.kept[0].why) == b"first"


def held(place: str) -> bytes:
    return Path(place).read_bytes()


def test_edit_with_forged_size_and_time_is_detected(desk: Desk) -> None:
    def forge() -> None:
        before = os.stat(desk.path("a/file"))
        desk.edit("a/file", b"NEW")()
        os.utime(desk.path("a/file"), ns=(before.st_atime_ns, before.st_mtime_ns))

    outcome = desk.engine.restore(desk.second, desk.first, meanwhile=forge)
    assert outcome.skipped == {b"a/file": CHANGED}
    assert desk.path("a/file").read_bytes() == b"NEW"


def test_edit_with_forged_size_and_time_is_detected_by_continue(desk: Desk) -> None:
    """The restore was killed, the file was edited, and the restore is continued."""
    desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    before = os.stat(desk.path("a/file"))
    desk.edit("a/file", b"NEW")()
    os.utime(desk.path("a/file"), ns=(before.st_atime_ns, before.st_mtime_ns))
    # A file whose ctime alone changed, by a hard link that was created and removed, is unchanged.
    os.link(desk.path("log"), desk.path("log2"))
    desk.path("log2").unlink()
    applied, kept = desk.engine.continue_restore()
    assert {left.path: left.why for left in applied.skipped} == {b"a/file": CHANGED}
    assert kept == ()
    assert desk.path("a/file").read_bytes() == b"NEW"
    assert desk.unlike_the_first() == {b"a/file"}


def test_file_saved_while_a_restore_is_aborted_is_kept(desk: Desk) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.disk() as disk:
        apply(journal, disk, fresh=True)
    with desk.engine.disk(MeddlingCalls("exchange", b"file", desk.save_over("a/file"))) as disk:
        applied = abort(journal, disk)
        kept = finish(journal, disk, desk.engine.private, undone=True)
    assert [left.path for left in applied.skipped] == [b"a/file"]
    assert desk.path("a/file").read_bytes() == b"by hand"
    assert [held(item.why) for item in kept] == [b"new"]


def test_file_created_in_the_place_of_a_new_file_is_kept(desk: Desk) -> None:
    outcome = desk.engine.restore(desk.second, desk.first, meanwhile=desk.edit("came"[:4] + "/back"))
    assert outcome.skipped == {b"came": CREATED}
    assert desk.path("came/back").read_bytes() == b"by hand"


@pytest.mark.parametrize("calls", [MeddlingCalls, MeddlingPlainCalls])
def test_file_created_right_before_the_swap_is_kept(desk: Desk, calls: type[MeddlingCalls]) -> None:
    meddling = calls("move to", b"came", desk.edit("came/back"))
    outcome = desk.engine.restore(desk.second, desk.first, calls=meddling)
    assert outcome.skipped == {b"came": CREATED}
    assert desk.path("came/back").read_bytes() == b"by hand"


def test_directory_with_a_new_file_is_kept(desk: Desk) -> None:
    outcome = desk.engine.restore(desk.second, desk.first, meanwhile=desk.edit("made/just now"))
    assert outcome.skipped == {b"made": NOT_EMPTY}
    assert desk.unlike_the_first() == {b"made/just now"}


@pytest.mark.parametrize("calls", [MeddlingCalls, MeddlingPlainCalls])
def test_directory_with_a_file_created_during_the_swap_is_put_back(
    desk: Desk, calls: type[MeddlingCalls]
) -> None:
    meddling = calls("move", b"made", desk.edit("made/just now"))
    outcome = desk.engine.restore(desk.second, desk.first, calls=meddling)
    assert outcome.skipped == {b"made": NOT_EMPTY}
    assert desk.unlike_the_first() == {b"made/just now"}


def test_data_written_through_an_open_descriptor_is_kept(desk: Desk) -> None:
    with open(desk.path("log"), "ab", buffering=0) as log:
        meddling = MeddlingCalls("after exchange", b"log", lambda: None)
        plan = desk.engine.plan(desk.second, desk.first)
        journal, _ = desk.engine.prepare(plan)
        with desk.engine.disk(meddling) as disk:
            apply(journal, disk, fresh=True)
            log.write(b"line 3\n")
            kept = finish(journal, disk, desk.engine.private)
    assert desk.engine.list_files() == desk.then
    assert [item.path for item in kept] == [b"log"]
    assert held(kept[0].why) == b"line 1\nline 2\nline 3\n"


@pytest.mark.parametrize("how", ["edit", "save_over"])
def test_edit_before_an_abort_is_kept(desk: Desk, how: str) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.disk() as disk:
        apply(journal, disk, fresh=True)
        getattr(desk, how)("a/file")()
        desk.edit("came/more")()
        applied = abort(journal, disk)
        kept = finish(journal, disk, desk.engine.private, undone=True)
    places = {item.path: item.why for item in kept}
    if how == "edit":
        # A restored file was edited: the old contents return, and the edit is kept.
        assert desk.path("a/file").read_bytes() == b"new"
        assert held(places[b"a/file"]) == b"by hand"
    else:
        assert desk.path("a/file").read_bytes() == b"by hand"
        assert held(places[b"a/file"]) == b"new"
        assert b"a/file" in {left.path for left in applied.skipped}
    assert (Path(places[b"came"]) / "more").read_bytes() == b"by hand"


class WritingCalls(DiskCalls):
    """Create a file in a directory right before a call on a name."""

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


def test_file_created_in_a_directory_during_its_removal_is_kept(desk: Desk) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.disk(WritingCalls("rmdir", slot_of(desk, journal, b"made"), desk.path("made"))) as disk:
        apply(journal, disk, fresh=True)
        kept = finish(journal, disk, desk.engine.private)
    assert [item.path for item in kept] == [b"made"]
    assert os.listdir(kept[0].why) == ["just now"]
    assert desk.engine.list_files() == desk.then


def test_file_created_in_a_directory_during_an_abort_is_kept(desk: Desk) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.disk() as disk:
        apply(journal, disk, fresh=True)
    with desk.engine.disk(WritingCalls("unlink", b"back", desk.path("came"))) as disk:
        abort(journal, disk)
        kept = finish(journal, disk, desk.engine.private, undone=True)
    assert [item.path for item in kept] == [b"came"]
    assert os.listdir(kept[0].why) == ["just now"]
    assert desk.engine.list_files() == desk.now


def test_edit_with_forged_time_before_an_abort_is_kept(desk: Desk) -> None:
    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.disk() as disk:
        apply(journal, disk, fresh=True)
        before = os.stat(desk.path("came/back"))
        wait_for_a_tick(desk.top)
        desk.edit("came/back", b"BACK")()
        os.utime(desk.path("came/back"), ns=(before.st_atime_ns, before.st_mtime_ns))
        abort(journal, disk)
        kept = finish(journal, disk, desk.engine.private, undone=True)
    assert [item.path for item in kept] == [b"came"]
    assert (Path(kept[0].why) / "back").read_bytes() == b"BACK"


def wait_for_a_tick(top: Path) -> None:
    """Wait until the file system's clock has advanced."""
    probe = top.parent / "probe"
    probe.write_bytes(b"")
    began = probe.stat().st_mtime_ns
    while probe.stat().st_mtime_ns == began:
        probe.write_bytes(b"")


def test_kept_files_are_synced_before_the_journal_is_removed(desk: Desk) -> None:
    events: list[str] = []

    class Noting(DiskCalls):
        def sync(self, descriptor: int) -> None:
            journal = os.path.exists(os.path.join(desk.engine.private, "journal"))
            kept = list(Path(desk.engine.private).rglob("kept/*"))
            events.append(f"synced with {len(kept)} kept, journal {journal}")
            super().sync(descriptor)

    journal, _ = desk.engine.prepare(desk.engine.plan(desk.second, desk.first))
    with desk.engine.disk(Noting()) as disk, open(desk.path("log"), "ab", buffering=0) as log:
        apply(journal, disk, fresh=True)
        log.write(b"line 3\n")
        assert len(finish(journal, disk, desk.engine.private)) == 1
    assert events[-1] == "synced with 1 kept, journal True"


OUTSIDE: Tree = {
    **{name: File(b"outside") for name in (b"file", b"more", b"in", b"into", b"into2")},
    b"deep/file": File(b"outside"),
    b"deep": Directory(0o700),
}


class PlantingCalls(DiskCalls):
    """Replace a directory by a link to another one before the n-th change."""

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
def test_link_planted_between_two_changes_is_not_followed(tmp_path: Path, directory: str) -> None:
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
            # A directory without permissions cannot be moved by others.
            os.chmod(place / directory, 0o700)
            os.rename(place / directory, place.parent / f"aside {number}")
            os.symlink(outside, place / directory)
            seen.append(b"planted")

    with engine.disk(PlantingCalls(number, plant)) as disk:
        apply(journal, disk, fresh=True)
        finish(journal, disk, engine.private)
    assert listing(outside, top=True) == canary
    return bool(seen)


def test_hard_link_to_an_outside_file_is_not_written_through(tmp_path: Path, repo: Repo) -> None:
    store = tmp_path / "store"
    store.write_bytes(b"package")
    os.link(store, repo.path / "package")
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.list_files()
    os.unlink(repo.path / "package")
    (repo.path / "package").write_bytes(b"changed")
    second = engine.capture()
    engine.restore(second, first)
    assert engine.list_files().keys() == then.keys()
    assert (repo.path / "package").read_bytes() == b"package"
    (repo.path / "package").write_bytes(b"written to")
    assert store.read_bytes() == b"package"


@pytest.mark.parametrize("change", ["content", "mode"])
def test_other_name_of_a_file_keeps_its_contents(tmp_path: Path, repo: Repo, change: str) -> None:
    (repo.path / "package").write_bytes(b"package")
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.list_files()
    (repo.path / "package").chmod(0o600)
    if change == "content":
        (repo.path / "package").write_bytes(b"changed")
    os.link(repo.path / "package", tmp_path / "store")
    second = engine.capture()
    seen = os.stat(tmp_path / "store")
    outcome = engine.restore(second, first)
    assert engine.list_files() == then
    assert outcome.differences == ()
    found = os.stat(tmp_path / "store")
    assert (found.st_mode, found.st_mtime_ns, found.st_size) == (seen.st_mode, seen.st_mtime_ns, seen.st_size)


def test_running_program_and_mapped_file_keep_their_contents(repo: Repo) -> None:
    program = repo.path / "program"
    shutil.copy(
        sys.executable if not os.path.islink(sys.executable) else os.path.realpath(sys.executable), program
    )
    data = repo.write("data", b"first" * 1000)
    engine = Engine(repo.path)
    first, then = engine.capture(), engine.list_files()
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    data.write_bytes(b"other" * 1000)
    second = engine.capture()
    with open(data, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        running = subprocess.Popen([str(program), "60"])
        try:
            outcome = engine.restore(second, first)
            assert engine.list_files() == then
            assert running.poll() is None
            assert mapped[:5] == b"other"
            assert outcome.skipped == {}
        finally:
            running.kill()
            running.wait()


def test_data_written_through_a_mapping_is_kept(tmp_path: Path) -> None:
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
            # A write to a page that is dirty already changes no time; restore the time, as the page may be clean here.
            seen = os.stat(opened.fileno())
            mapped[:3] = b"NEW"
            os.utime(opened.fileno(), ns=(seen.st_atime_ns, seen.st_mtime_ns))

        calls = MeddlingCalls("after exchange", b"mapped", write)
        outcome = engine.restore(second, first, calls=calls)
    assert file.read_bytes() == b"old"
    (kept,) = outcome.kept
    assert kept.path == b"mapped"
    assert (Path(engine.private) / kept.why).read_bytes()[:6] == b"NEWnew"
