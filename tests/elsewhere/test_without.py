"""On a system that lacks something a capture takes another way, and the snapshot is the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from git_envhist import platform
from git_envhist.platform import SYSTEM, WITHOUT, Platform, open_compared, read_system, save_current_directory
from git_envhist.worktree import scan
from git_envhist.worktree.scan import PathDirectoryCursor
from tests.capture.helpers import everything_stored
from tests.end_to_end.captures import assert_holds
from tests.support.oracle import git_fsck, listing
from tests.support.programs import CHECKOUT
from tests.support.repository import Repo
from tests.support.snapshot import read_back
from tests.support.trees import (
    Append,
    Directory,
    File,
    Forge,
    HardLink,
    Link,
    Put,
    Remove,
    Rename,
    apply,
    build,
)

MANY = ",".join(name for name in Platform._fields if name not in ("xattr", "spawn"))
LACKS = (
    *("fork", "fork,spawn,fchdir", "fchdir", "nofollow", "xattr", "proc"),
    *("memfd,affinity,statvfs", "flock", "isal", MANY),
)
TREE = {
    **{b"many/f%02d" % n: File(b"%d" % n) for n in range(40)},
    b"deep/er/and/deeper/file": File(b"1", xattrs=(("user.note", b"2"),)),
    b"deep/link": Link(b"/etc/passwd"),
    b"deep/second": HardLink(b"many/f01"),
    b"empty": Directory(0o700),
    b"big": File(b"0123456789" * 1_000_000),
}
EDITS = (
    Forge(b"many/f02"),
    Append(b"deep/second", b"more"),
    Rename(b"deep/er", b"moved"),
    Remove(b"many/f03"),
    Put(b"new/a/b", File(b"1")),
    Put(b"empty", Link(b"many")),
)


def capture(repo: Repo, lack: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", env={WITHOUT: lack}, check=True).out.strip()


def assert_true(repo: Repo, commit: str, lack: str) -> None:
    if "xattr" not in lack:
        assert_holds(repo, commit)
        return
    wanted = {path: replace(entry, xattrs=()) for path, entry in listing(repo.path, top=True).items()}
    assert read_back(repo, commit).listing == wanted


@pytest.mark.parametrize("lack", LACKS)
def test_a_snapshot_and_the_next_are_true_without(repo: Repo, lack: str) -> None:
    repo.git("config", "envhist.workers", "2")
    build(TREE, repo.path)
    assert_true(repo, capture(repo, lack), lack)
    apply(EDITS, repo.path)
    assert_true(repo, capture(repo, lack), lack)
    assert git_fsck(repo.path) == ""


@pytest.mark.parametrize("lack", ["nofollow", "proc", "fork,fchdir,flock,openat2,nowait", MANY])
def test_a_restore_leads_to_the_moment_and_nowhere_out_of_it(repo: Repo, tmp_path: Path, lack: str) -> None:
    outside = tmp_path / "outside"
    build({b"sub/file": File(b"outside", mode=0o640)}, outside)
    build({b"there/sub/file": File(b"inside"), b"gone/sub/file": File(b"2")}, repo.path)
    first, before = capture(repo, lack), listing(repo.path, top=True)
    shutil.rmtree(repo.path / "there")
    apply((Put(b"there", Link(os.fsencode(outside))), Remove(b"gone")), repo.path)
    second, after = capture(repo, lack), listing(repo.path, top=True)
    untouched = listing(outside, top=True)
    for moment, wanted in ((first, before), (second, after), (first, before)):
        repo.run("envrestore", "-q", moment, env={WITHOUT: lack}, check=True)
        assert listing(repo.path, top=True) == wanted
        assert listing(outside, top=True) == untouched


CORE = (
    "worktree/test_read_file.py::test_file_replaced_between_scan_and_read_is_captured_as_it_is",
    "worktree/test_read_file.py::test_directory_replaced_by_a_link_does_not_lead_outside",
    "capture/test_budget.py::test_largest_files_are_skipped_over_the_budget[fork-2]",
    "capture/test_scope.py::test_deep_tree_is_captured_with_few_descriptors[here]",
    "capture/test_collect.py::test_each_ticket_is_taken_once",
    "capture/test_collect.py::test_capture_leaves_the_process_unchanged",
)


@pytest.mark.full
def test_the_core_of_the_suite_holds_where_almost_everything_is_lacking() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    words += [f"tests/{test}" for test in CORE]
    # What this run was told of itself is not for the run below it.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        words, cwd=CHECKOUT, env={**kept, WITHOUT: MANY}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def test_whatever_can_be_lacking_is_tried() -> None:
    assert {name for lack in LACKS for name in lack.split(",")} == set(Platform._fields)


def test_the_variable_takes_away_and_gives_nothing() -> None:
    assert read_system({}) == read_system({WITHOUT: ""}) == read_system({WITHOUT: "telepathy"})
    without = read_system({WITHOUT: "fork, proc"})
    assert (without.fork, without.proc) == (False, False)
    assert without._replace(fork=SYSTEM.fork, proc=SYSTEM.proc) == read_system({})


@pytest.mark.parametrize(
    ("there", "wanted", "gets"),
    [
        (Platform(), "fork", "fork"),
        (Platform(fork=False), "fork", "spawn"),
        (Platform(fork=False, spawn=False), "fork", "here"),
        (Platform(spawn=False), "spawn", "here"),
        (Platform(spawn=False), "fork", "fork"),
        (Platform(), "here", "here"),
    ],
)
def test_workers_run_in_the_nearest_way_there_is(
    monkeypatch: pytest.MonkeyPatch, there: Platform, wanted: str, gets: str
) -> None:
    monkeypatch.setattr(platform, "SYSTEM", there)
    assert platform.worker_mode(wanted) == gets


# Names may be swapped between two calls. Where no descriptor helps, comparing does.


@pytest.fixture
def inside_and_outside(tmp_path: Path) -> Iterator[Path]:
    for place in ("top/a/b", "outside/b"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "file").write_text(place)
    go_back = save_current_directory()
    yield tmp_path
    go_back()


def before_the_next(
    monkeypatch: pytest.MonkeyPatch, call: str, when: Callable[[bytes], bool], act: Callable[[], None]
) -> None:
    """Have something happen right before one call, behind the back of who looked a moment ago."""
    real, done = getattr(os, call), []

    def wrapped(name: bytes, *more: object, **named: object) -> object:
        if not done and when(name):
            done.append(True)
            act()
        return real(name, *more, **named)

    monkeypatch.setattr(scan.os, call, wrapped)


def swap(place: Path) -> Callable[[], None]:
    def act() -> None:
        (place / "top/a").rename(place / "top/aside")
        (place / "top/a").symlink_to(place / "outside")

    return act


def test_a_directory_swapped_between_look_and_step_is_no_way_out(
    inside_and_outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descent = PathDirectoryCursor({b"": os.fsencode(inside_and_outside / "top")})
    with monkeypatch.context() as patch:
        before_the_next(patch, "chdir", lambda name: name == b"a", swap(inside_and_outside))
        with pytest.raises(NotADirectoryError):
            descent.enter(b"a/b")
    with pytest.raises(NotADirectoryError):
        descent.enter(b"a/b")
    descent.enter(b"aside/b")
    assert Path("file").read_text() == "top/a/b"


def test_the_way_up_from_a_directory_that_was_moved_out_leads_nowhere_else(inside_and_outside: Path) -> None:
    descent = PathDirectoryCursor({b"": os.fsencode(inside_and_outside / "top")})
    descent.enter(b"a/b")
    (inside_and_outside / "top/a/b").rename(inside_and_outside / "outside/moved")
    (inside_and_outside / "outside/c").mkdir()
    (inside_and_outside / "top/a/c").mkdir()
    seen = descent.enter(b"a/c")
    assert seen.st_ino == (inside_and_outside / "top/a/c").stat().st_ino
    assert os.getcwd() == str(inside_and_outside / "top/a/c")


def test_two_descents_of_one_process_do_not_lead_each_other_astray(inside_and_outside: Path) -> None:
    first = PathDirectoryCursor({b"": os.fsencode(inside_and_outside / "top")})
    second = PathDirectoryCursor({b"": os.fsencode(inside_and_outside / "outside")})
    for _ in range(2):
        assert first.enter(b"a/b").st_ino == (inside_and_outside / "top/a/b").stat().st_ino
        assert second.enter(b"b").st_ino == (inside_and_outside / "outside/b").stat().st_ino


@pytest.mark.parametrize("what", ["a link", "another file", "nothing"])
def test_a_file_swapped_between_look_and_opening_is_not_read(
    inside_and_outside: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = inside_and_outside / "top/a/b/file"

    def act() -> None:
        path.rename(inside_and_outside / "aside")
        if what == "a link":
            path.symlink_to(inside_and_outside / "outside/b/file")
        elif what == "another file":
            path.write_text("new")

    before_the_next(monkeypatch, "open", lambda name: name == os.fsencode(path), act)
    with pytest.raises(OSError, match=r"symbolic links|No such file"):
        open_compared(os.fsencode(path), os.O_RDONLY)


@contextmanager
def swapping(directory: Path, target: Path) -> Iterator[None]:
    """A directory that is a link to another one half of the time."""
    ended = threading.Event()
    link, aside = directory.with_name("link"), directory.with_name("aside")
    link.symlink_to(target)

    def swap_on() -> None:
        while not ended.is_set():
            directory.rename(aside)
            link.rename(directory)
            directory.rename(link)
            aside.rename(directory)

    thread = threading.Thread(target=swap_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("lack", ["", "fchdir,nofollow"])
def test_nothing_outside_is_read_while_a_directory_is_a_link_half_of_the_time(
    repo: Repo, tmp_path: Path, lack: str
) -> None:
    canary = b"canary that nobody may ever capture"
    for number in range(10):
        repo.write(f"dir/sub/f{number}", b"inside")
        outside = tmp_path / f"outside/sub/f{number}"
        outside.parent.mkdir(parents=True, exist_ok=True)
        outside.write_bytes(canary)
    repo.git("config", "envhist.workers", "1")
    with swapping(repo.path / "dir", tmp_path / "outside"):
        for _ in range(2):
            capture(repo, lack)
    assert canary not in everything_stored(repo)
    assert_holds(repo, capture(repo, lack))
