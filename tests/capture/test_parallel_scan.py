"""Failing workers and hostile directories: an error is reported, the old snapshot is kept and no file is left."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.capture.capture_worker import CaptureWorker
from git_envhist.capture.parallel_scan import ScanDriver
from git_envhist.errors import Damaged, EnvhistError, StorageFull, WorkingTreeGone
from git_envhist.workers import (
    MAX_TICKETS,
    Frame,
    Inbox,
    InlineWorker,
    Outbox,
    Pool,
    SharedCounters,
    WorkerFailed,
    WorkerHandle,
    fork_worker,
    frames_from,
    send,
)
from tests.capture.helpers import HOWS, snapshot, take
from tests.end_to_end.captures import assert_holds, history, tip
from tests.support.oracle import git_fsck
from tests.support.repository import Repo
from tests.support.trees import File, build


def leftovers(repo: Repo) -> list[str]:
    staging = repo.path / ".git/envhist/staging"
    held = [path.name for path in staging.iterdir() if path.is_dir()] if staging.is_dir() else []
    packs = (repo.path / ".git/objects/pack").glob("*")
    return held + [path.name for path in packs if path.suffix not in (".pack", ".idx", ".keep")]


class Echo:
    """A worker that runs the given function."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def call(self, method: str, arguments: tuple[object, ...]) -> Iterator[Frame]:
        if method == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if method == "fail":
            raise arguments[0]  # type: ignore[misc]
        if method == "count":
            yield from ((self.number, number) for number in range(int(str(arguments[0]))))
        if method == "damaged":
            raise Damaged("the pack is damaged")
        if method == "full":
            raise StorageFull("no room", hint="make room")
        if method == "odd":
            raise ValueError
        if method == "echo":
            yield arguments

    def close(self) -> None:
        pass


def pool_of(workers: int, *, here: bool = False) -> Pool:
    lines: list[WorkerHandle] = []
    for number in range(workers):
        lines.append(InlineWorker(Echo(number)) if here else fork_worker(lambda n=number: Echo(n), lines))  # type: ignore[misc]
    return Pool(SharedCounters(workers), lines)


@pytest.mark.parametrize("here", [True, False])
def test_frames_of_all_workers_arrive_in_order(here: bool) -> None:
    pool = pool_of(3, here=here)
    try:
        frames = list(pool.ask_each("count", 500))
        for number in range(3):
            assert [frame[1] for line, frame in frames if line == number] == list(range(500))
    finally:
        pool.close()


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 5_000_000])
def test_frames_of_any_size_are_received(size: int) -> None:
    pool = pool_of(2)
    try:
        words = (b"x" * size, ["é", None, -(2**62)], {b"k": (1, 2)})
        assert [frame for _, frame in pool.ask_each("echo", *words)] == [words, words]
    finally:
        pool.close()


def test_small_frames_are_batched_in_order() -> None:
    reading, writing = os.pipe()
    outbox = Outbox(writing)
    for number in range(1000):
        outbox.put((number,))
    outbox.flush()
    os.close(writing)
    pieces: list[bytes] = []
    while block := os.read(reading, 65_536):
        pieces.append(block)
    os.close(reading)
    assert len(pieces) < 5
    # Split at other places than sent: inside a length and inside a frame.
    stream = b"".join(pieces)
    reading, writing = os.pipe()
    inbox, frames = Inbox(reading), []
    for at in range(0, len(stream), 1001):
        os.write(writing, stream[at : at + 1001])
        frames += inbox.receive()
    os.close(writing)
    assert frames == [(number,) for number in range(1000)]
    with pytest.raises(EOFError):
        inbox.receive()
    os.close(reading)


def test_frame_is_read_whole_when_it_arrives_in_parts() -> None:
    reading, writing = os.pipe()
    frame = ("slowly", b"x" * 300_000)
    writer = threading.Thread(target=send, args=(writing, frame))
    writer.start()
    frames = frames_from(reading)
    assert next(frames) == frame
    writer.join()
    os.close(writing)
    assert list(frames) == []
    os.close(reading)


@pytest.mark.parametrize(
    ("method", "kind", "text"),
    [
        ("die", WorkerFailed, "ended unexpectedly"),
        ("damaged", Damaged, "the pack is damaged"),
        ("full", StorageFull, "no room"),
        ("odd", WorkerFailed, "ValueError"),
    ],
)
def test_failure_of_a_worker_raises_our_error(method: str, kind: type[EnvhistError], text: str) -> None:
    pool = pool_of(2)
    try:
        with pytest.raises(kind, match=text):
            list(pool.ask_each(method))
    finally:
        pool.close()


def test_error_of_a_worker_that_cannot_start_reaches_the_caller() -> None:
    def make() -> Echo:
        raise StorageFull("no room")

    lines: list[WorkerHandle] = [fork_worker(make, [])]
    pool = Pool(SharedCounters(1), lines)
    try:
        with pytest.raises(StorageFull, match="no room"):
            list(pool.ask_each("echo"))
    finally:
        pool.close()


@pytest.mark.parametrize("how", HOWS)
def test_capture_reports_the_directory_as_gone_when_it_is_removed_before_a_worker_starts(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "plain"
    directory.mkdir()
    (directory / "a").write_text("1")
    history = EnvHistory.init(directory, workers=how, one_command=True)
    make = ScanDriver._make_pool

    def remove_and_make(gatherer: ScanDriver) -> Pool:
        shutil.rmtree(directory)
        return make(gatherer)

    monkeypatch.setattr(ScanDriver, "_make_pool", remove_and_make)
    with pytest.raises(WorkingTreeGone, match="nothing was captured"):
        history.capture("x")
    assert capfd.readouterr().err == ""
    directory.mkdir()
    assert history.log() == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_signal_that_the_parent_ignores_does_not_end_a_worker(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        pool = pool_of(1)
        try:
            # The first answer shows that the worker has set its signals.
            assert [frame for _, frame in pool.ask_each("count", 1)] == [(0, 0)]
            os.kill(pool.lines[0]._child, number)  # type: ignore[attr-defined]
            assert [frame for _, frame in pool.ask_each("count", 1)] == [(0, 0)]
        finally:
            pool.close()
    finally:
        signal.signal(number, before)


def test_error_of_a_worker_keeps_its_hint() -> None:
    pool = pool_of(2)
    try:
        with pytest.raises(StorageFull) as told:
            list(pool.ask_each("full"))
    finally:
        pool.close()
    assert told.value.hint == "make room"


def test_request_to_a_dead_worker_raises_our_error() -> None:
    pool = pool_of(1)
    try:
        with pytest.raises(WorkerFailed):
            list(pool.ask_each("die"))
        with pytest.raises(WorkerFailed):
            list(pool.ask_each("echo", b"x" * 1_000_000))
    finally:
        pool.close()


def test_each_ticket_is_taken_once() -> None:
    shared = SharedCounters(1)
    shared.offer(MAX_TICKETS)
    drawn = []
    while (ticket := shared.take()) is not None:
        drawn.append(ticket)
    assert drawn == list(range(MAX_TICKETS))
    assert shared.take() is None
    shared.close()


def test_no_directory_is_missed_with_small_pipes(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("git_envhist.capture.parallel_scan.DIRECTORIES_PER_CHUNK", 1)
    for number in range(1500):
        repo.write(f"d{number}/file", "x")
    pipe, pipe2 = os.pipe, os.pipe2
    monkeypatch.setattr(os, "pipe", lambda: small(pipe()))
    monkeypatch.setattr(os, "pipe2", lambda flags: small(pipe2(flags)))

    taken = take(repo, "fork")

    assert taken.files == 1501


def small(ends: tuple[int, int]) -> tuple[int, int]:
    """Make a pipe as small as for a user with thousands of them."""
    fcntl.fcntl(ends[0], fcntl.F_SETPIPE_SZ, 4096)
    return ends


def test_concurrent_workers_take_different_tickets() -> None:
    shared = SharedCounters(3)
    pool = Pool(shared, [])
    for _ in range(3):
        pool.lines.append(fork_worker(lambda: Drawer(shared), pool.lines))
    try:
        for _ in range(20):
            shared.offer(MAX_TICKETS)
            drawn = [ticket for _, (tickets,) in pool.ask_each("draw") for ticket in tickets]  # type: ignore[attr-defined]
            assert sorted(drawn) == list(range(MAX_TICKETS))
    finally:
        pool.close()


class Drawer(Echo):
    """A worker that takes all tickets it can get."""

    def __init__(self, shared: SharedCounters) -> None:
        self.shared = shared

    def call(self, method: str, arguments: tuple[object, ...]) -> Iterator[Frame]:
        yield (list(iter(self.shared.take, None)),)


def test_capture_works_with_more_descriptors_than_select_supports(repo: Repo) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("the limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        taken = snapshot(repo, "fork")
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert_holds(repo, taken.commit)


@pytest.mark.parametrize("method", ["do_scan", "do_read", "do_pack"])
def test_killed_worker_leaves_the_old_snapshot(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    repo.git("config", "envhist.workers", "2")
    build({b"d%d/f" % n: File(b"%d" % n) for n in range(100)}, repo.path)
    old = snapshot(repo, "fork").commit
    build({b"new%d/f" % n: File(b"new %d" % n) for n in range(100)}, repo.path)
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    real = getattr(CaptureWorker, method)

    def killed(self: CaptureWorker, *words: object) -> Iterator[Frame]:
        for count, frame in enumerate(real(self, *words)):
            if count == 5 or method == "do_pack":
                os.kill(os.getpid(), signal.SIGKILL)
            yield frame
        if method == "do_scan":
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(CaptureWorker, method, killed)
        with pytest.raises(WorkerFailed, match="worker process ended unexpectedly"):
            take(repo, "fork")
    assert tip(repo) == old
    assert leftovers(repo) == []
    assert git_fsck(repo.path) == ""
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors
    assert_holds(repo, snapshot(repo, "fork").commit)
    assert len(history(repo)) == 2


@pytest.mark.parametrize("how", HOWS)
def test_damaged_stat_cache_changes_no_result(repo: Repo, how: str) -> None:
    build({b"d%d/f" % n: File(b"%d" % n) for n in range(20)}, repo.path)
    take(repo)
    cache = repo.path / ".git/envhist/cache"
    for part in ("head", "shard-*"):
        for damage in (lambda _: b"", lambda _: bytes(100), lambda data: data[:-1], lambda data: data + b"x"):
            # Each capture may rename its shards.
            for path in cache.glob(part):
                path.write_bytes(damage(path.read_bytes()))
            assert_holds(repo, snapshot(repo, how).commit)
    assert git_fsck(repo.path) == ""


@pytest.mark.parametrize("how", HOWS)
def test_capture_leaves_the_process_unchanged(repo: Repo, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo.path.parent)
    take(repo, how)
    assert Path.cwd() == repo.path.parent
    before = (os.getcwd(), len(os.listdir("/proc/self/fd")), signal.getsignal(signal.SIGINT))
    repo.write("more", b"1")
    take(repo, how)
    take(repo, how, dry_run=True)
    assert (os.getcwd(), len(os.listdir("/proc/self/fd")), signal.getsignal(signal.SIGINT)) == before


def test_no_module_of_the_current_directory_is_imported(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = "open('RAN', 'w')\nraise SystemExit(3)\n"
    for module in ("struct", "marshal", "hashlib", "array", "stat", "zlib", "git_envhist", "sitecustomize2"):
        repo.write(f"{module}.py", trap)
    monkeypatch.chdir(repo.path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    taken = snapshot(repo, "spawn")
    assert not (repo.path / "RAN").exists()
    assert_holds(repo, taken.commit)
