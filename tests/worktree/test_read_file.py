"""Files that change, have no end, fail, or are replaced before they are opened."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from git_envhist.model import MissingReason
from git_envhist.worktree import read_file as reading
from git_envhist.worktree import store_content
from git_envhist.worktree.read_file import (
    FileVanished,
    KindChanged,
    Unreadable,
    open_file,
    read_file,
    read_streamed,
)
from git_envhist.worktree.scan import ScannedDirectory, ScannedEntry, build_record, open_cursor
from git_envhist.worktree.stat_cache import COLUMNS, CTIME, WIDTH
from tests.capture.helpers import HOWS, snapshot, take
from tests.end_to_end.captures import assert_holds
from tests.support.oracle import listing
from tests.support.repository import Repo
from tests.support.snapshot import read_back

SECOND = 1_000_000_000


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = open_file(os.fsencode(path))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Run an action during each read; it gets the number of the read."""
    real, count = os.pread, iter(range(1_000_000))

    def read(descriptor: int, size: int, at: int) -> bytes:
        data = real(descriptor, size, at)
        act(next(count))
        return data

    monkeypatch.setattr(reading.os, "pread", read)


def test_file_changed_in_place_during_a_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def act(number: int) -> None:
        if number == 0:
            path.write_bytes(b"new")

    with opened(path) as descriptor:
        meanwhile(monkeypatch, act)
        read = read_file(descriptor)
    assert (read.data, read.stable) == (b"new", True)


@pytest.mark.parametrize("change", [b"longer than before", b"", b"x"], ids=["grown", "emptied", "shrunk"])
def test_file_that_changes_size_during_a_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def act(number: int) -> None:
        if number == 0:
            path.write_bytes(change)

    with opened(path) as descriptor:
        meanwhile(monkeypatch, act)
        read = read_file(descriptor)
    assert (read.data, read.stable, read.stat.st_size) == (change, True, len(change))


def test_file_that_keeps_changing_is_stored_and_marked_unstable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0")
    with opened(path) as descriptor:
        meanwhile(monkeypatch, lambda number: path.write_bytes(b"%d" % number) and None)
        started = time.monotonic()
        assert not read_file(descriptor).stable
        assert not read_streamed(descriptor, lambda blocks: [*blocks].clear())[1]
    assert time.monotonic() - started < 10


def test_equal_stats_of_a_young_file_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Written so often that each stat finds it younger than a clock tick: it may change and keep its stat.
    (tmp_path / "file").write_bytes(b"1")
    monkeypatch.setattr(reading, "_young_ns", lambda seen: 1)
    with opened(tmp_path / "file") as descriptor:
        assert not read_file(descriptor).stable
        assert not read_streamed(descriptor, lambda blocks: [*blocks].clear())[1]


@contextmanager
def rewritten(path: Path, size: int) -> Iterator[None]:
    """Fill a file with one byte, then another, and so on, in place, while the context lasts."""
    done = threading.Event()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes(size), 0)

    def write() -> None:
        for turn in itertools.cycle(range(256)):
            # In one call: between two calls the file may be stable, and then it is consistent.
            os.pwrite(descriptor, bytes([turn]) * size, 0)
            if done.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()
        os.close(descriptor)


@pytest.mark.parametrize("how", HOWS)
def test_file_written_continuously_is_consistent_or_marked_unstable(repo: Repo, how: str) -> None:
    repo.git("config", "envhist.workers", "2")
    with rewritten(repo.path / "small", 800), rewritten(repo.path / "large", 1 << 20):
        for _ in range(3):
            taken = take(repo, how)
            assert taken.snapshot is not None
            for name in ("small", "large"):
                held = repo.run_git("show", f"{taken.snapshot.commit}:{name}").stdout
                told = [one.why for one in taken.missing if one.path == name.encode()]
                assert told == [MissingReason.UNSTABLE] or len(set(held)) == 1
    assert take(repo).missing == ()
    assert_holds(repo, snapshot(repo).commit)


@pytest.mark.parametrize("how", ["here", "fork"])
def test_unstable_file_is_reported_by_every_kind_of_worker(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    repo.git("config", "envhist.workers", "2")
    names = [f"d{number}/{size}" for number in range(30) for size in ("small", "large")]
    for name in names:
        repo.write(name, b"1" if name.endswith("small") else bytes(2 << 20))
    real = store_content.read_file
    with monkeypatch.context() as patch:
        patch.setattr(
            store_content, "read_file", lambda *words, **how: real(*words, **how)._replace(stable=False)
        )
        taken = take(repo, how)
    assert sorted(one.path.decode() for one in taken.missing) == sorted([*names, "app.py"])
    assert {one.why for one in taken.missing} == {MissingReason.UNSTABLE}
    assert taken.snapshot is not None
    assert not taken.snapshot.complete
    assert {name.encode() for name in names} <= set(read_back(repo, taken.snapshot.commit).listing)
    assert take(repo).missing == ()
    assert_holds(repo, snapshot(repo).commit)


def test_endless_file_without_size_is_abandoned() -> None:
    endless = next(
        (p for p in ("/proc/kmsg", "/proc/self/maps", "/proc/self/mountinfo") if os.access(p, os.R_OK)), None
    )
    if endless is None:
        pytest.skip("this system has no file that reports size 0 and has content")
    with opened(Path("/proc/self/maps")) as descriptor:
        read = read_file(descriptor)
    assert not read.stable
    assert len(read.data) <= 1


def test_disk_error_affects_one_file(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.write("dir/good", b"1")
    repo.write("dir/rotten", b"some bytes")
    repo.write("dir/rotten big", bytes(9 << 20))
    bad = {os.stat(repo.path / f"dir/{name}").st_ino for name in ("rotten", "rotten big")}
    real = os.pread

    def read(descriptor: int, size: int, at: int) -> bytes:
        if os.fstat(descriptor).st_ino in bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, size, at)

    with monkeypatch.context() as patch:
        patch.setattr(reading.os, "pread", read)
        taken = take(repo)
    assert {(one.path, one.why, one.detail) for one in taken.missing} == {
        (b"dir/rotten", MissingReason.IO_ERROR, "input/output error"),
        (b"dir/rotten big", MissingReason.IO_ERROR, "input/output error"),
    }
    assert taken.snapshot is not None
    assert not taken.snapshot.complete
    assert repo.git("show", f"{taken.snapshot.commit}:dir/good") == "1"
    assert_holds(repo, snapshot(repo).commit)


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "device"])
def test_path_that_is_no_file_when_opened_is_examined_again(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    with pytest.raises(KindChanged):
        open_file(os.fsencode(path))


def test_missing_and_unreadable_files_are_distinguished(tmp_path: Path) -> None:
    with pytest.raises(FileVanished):
        open_file(os.fsencode(tmp_path / "none"))
    with pytest.raises(Unreadable) as met:
        open_file(os.fsencode(tmp_path / ("x" * 300)))
    assert met.value.why is MissingReason.IO_ERROR


TURNS: dict[str, Callable[[Path], None]] = {
    "gone": lambda path: None,
    "a link out": lambda path: path.symlink_to("/etc/passwd"),
    "a pipe": os.mkfifo,
    "a directory": lambda path: path.mkdir(),
    "another file": lambda path: path.write_bytes(b"another") and None,  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("turn", TURNS)
def test_file_replaced_between_scan_and_read_is_captured_as_it_is(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, turn: str
) -> None:
    path = repo.write("dir/victim", b"as it was")
    repo.write("dir/witness", b"beside")
    real = store_content.open_with_stat

    def replaced(name: bytes) -> tuple[int, os.stat_result]:
        if name == b"victim" and os.lstat(path).st_size == len(b"as it was"):
            path.unlink()
            TURNS[turn](path)
        return real(name)

    with monkeypatch.context() as patch:
        patch.setattr(store_content, "open_with_stat", replaced)
        taken = take(repo)
    assert taken.snapshot is not None
    found = read_back(repo, taken.snapshot.commit).listing
    assert found[b"dir/witness"].size == len(b"beside")
    if turn == "a directory":
        assert [one.path for one in taken.missing] == [b"dir/victim"]
    elif turn == "gone":
        assert b"dir/victim" not in found
    else:
        assert found[b"dir/victim"].kind == {"a link out": "l", "a pipe": "p", "another file": "f"}[turn]
    assert_holds(repo, snapshot(repo).commit)


@pytest.mark.parametrize("turn", TURNS)
def test_pipe_replaced_between_scan_and_read_is_captured_as_it_is(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, turn: str
) -> None:
    path = repo.write("dir/witness", b"beside").with_name("victim")
    os.mkfifo(path, 0o640)
    met: list[bytes] = []
    real = store_content.FileSaver._store_node

    def replaced(self: store_content.FileSaver, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
        if not met:
            path.unlink()
            TURNS[turn](path)
        met.append(leaf.name)
        real(self, visit, leaf)

    with monkeypatch.context() as patch:
        patch.setattr(store_content.FileSaver, "_store_node", replaced)
        taken = take(repo)
    assert met[0] == b"victim"
    assert taken.snapshot is not None
    found = read_back(repo, taken.snapshot.commit).listing
    if turn == "a directory":
        assert [one.path for one in taken.missing] == [b"dir/victim"]
    elif turn == "gone":
        assert b"dir/victim" not in found
    else:
        kind = {"a link out": "l", "a pipe": "p", "another file": "f"}[turn]
        assert (found[b"dir/victim"].kind, found[b"dir/victim"].mode) == (
            kind,
            listing(repo.path)[b"dir/victim"].mode,
        )
    assert_holds(repo, snapshot(repo).commit)


def test_directory_replaced_by_a_link_does_not_lead_outside(tmp_path: Path) -> None:
    (tmp_path / "top/a/b").mkdir(parents=True)
    (tmp_path / "outside/b").mkdir(parents=True)
    here = os.open(".", os.O_RDONLY)
    descent = open_cursor({b"": os.fsencode(tmp_path / "top")})
    try:
        descent.enter(b"a")
        (tmp_path / "top/a").rename(tmp_path / "top/z")
        (tmp_path / "top/a").symlink_to(tmp_path / "outside")
        descent.enter(b"")
        with pytest.raises(OSError, match=r"[Nn]ot a directory|symbolic"):
            descent.enter(b"a/b")
        assert descent.enter(b"z/b").st_ino == os.stat(tmp_path / "top/z/b").st_ino
    finally:
        descent.close()
        os.fchdir(here)
        os.close(here)


def test_file_is_young_for_a_second_when_time_stamps_have_seconds(tmp_path: Path) -> None:
    # On a file system with whole seconds, a file written 0.9 s before the capture may change unnoticed.
    started = 1_700_000_000 * SECOND + 900_000_000
    whole, fine = 1_700_000_000 * SECOND, 1_700_000_000 * SECOND + 1
    rows = {
        name: (when, when, 5, 7, stat.S_IFREG | 0o644) for name, when in ((b"fine", fine), (b"whole", whole))
    }
    visit = ScannedDirectory(b"", os.stat(tmp_path))
    visit.leaves = [ScannedEntry(name, row, oid=bytes(20)) for name, row in rows.items()]
    record = build_record(visit, started, 20, b"")
    assert list(record.cells[CTIME::WIDTH]) == [fine, 0]


def test_stat_columns_equal_a_stat(tmp_path: Path) -> None:
    seen = os.stat(tmp_path)
    assert COLUMNS(seen) == (seen.st_ctime_ns, seen.st_mtime_ns, seen.st_size, seen.st_ino, seen.st_mode)
