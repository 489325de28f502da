"""On a system that lacks a feature, a capture uses another method, and the snapshot is the same."""

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
def test_first_and_next_snapshot_are_exact_without_a_feature(repo: Repo, lack: str) -> None:
    repo.git("config", "envhist.workers", "2")
    build(TREE, repo.path)
    assert_true(repo, capture(repo, lack), lack)
    apply(EDITS, repo.path)
    assert_true(repo, capture(repo, lack), lack)
    assert git_fsck(repo.path) == ""


@pytest.mark.parametrize("lack", ["nofollow", "proc", "fork,fchdir,flock,openat2,nowait", MANY])
def test_restore_without_a_feature_is_exact_and_changes_nothing_outside(
    repo: Repo, tmp_path: Path, lack: str
) -> None:
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
    "capture/test_parallel_scan.py::test_each_ticket_is_taken_once",
    "capture/test_parallel_scan.py::test_capture_leaves_the_process_unchanged",
)


@pytest.mark.full
def test_core_tests_pass_without_most_features() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    words += [f"tests/{test}" for test in CORE]
    # Do not pass pytest's variables on to the inner run.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        words, cwd=CHECKOUT, env={**kept, WITHOUT: MANY}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def test_every_feature_is_tried_without() -> None:
    assert {name for lack in LACKS for name in lack.split(",")} == set(Platform._fields)


def test_variable_removes_features_and_adds_none() -> None:
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
def test_workers_use_the_closest_mode_that_is_available(
    monkeypatch: pytest.MonkeyPatch, there: Platform, wanted: str, gets: str
) -> None:
    monkeypatch.setattr(platform, "SYSTEM", there)
    assert platform.worker_mode(wanted) == gets


# Names may be exchanged between two calls. Without directory descriptors, files are compared before and after
# opening.


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
    """Call a function right before one system call, after the caller has checked the path."""
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


def test_directory_exchanged_for_a_link_before_chdir_is_not_entered(
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


def test_cursor_finds_its_directory_after_the_current_one_was_moved_out(inside_and_outside: Path) -> None:
    descent = PathDirectoryCursor({b"": os.fsencode(inside_and_outside / "top")})
    descent.enter(b"a/b")
    (inside_and_outside / "top/a/b").rename(inside_and_outside / "outside/moved")
    (inside_and_outside / "outside/c").mkdir()
    (inside_and_outside / "top/a/c").mkdir()
    seen = descent.enter(b"a/c")
    assert seen.st_ino == (inside_and_outside / "top/a/c").stat().st_ino
    assert os.getcwd() == str(inside_and_outside / "top/a/c")


def test_two_cursors_of_one_process_do_not_disturb_each_other(inside_and_outside: Path) -> None:
    first = PathDirectoryCursor({b"": os.fsencode(inside_and_outside / "top")})
    second = PathDirectoryCursor({b"": os.fsencode(inside_and_outside / "outside")})
    for _ in range(2):
        assert first.enter(b"a/b").st_ino == (inside_and_outside / "top/a/b").stat().st_ino
        assert second.enter(b"b").st_ino == (inside_and_outside / "outside/b").stat().st_ino


@pytest.mark.parametrize("what", ["a link", "another file", "nothing"])
def test_file_exchanged_before_it_is_opened_is_not_read(
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
    """Exchange a directory and a link to another one over and over during the block."""
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
def test_no_file_outside_is_read_while_a_directory_alternates_with_a_link(
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
