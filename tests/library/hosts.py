"""Host programs that use the library in threads and fork at any time; run as `python -m tests.library.hosts`."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from git_envhist import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.locks import locked, try_lock
from git_envhist.model import Snapshot

FORBIDDEN = ("os.chdir", "os.fork", "os.forkpty", "os.putenv", "os.unsetenv")
"""Calls that affect the whole process: the library must not use them in a host program."""
THREADS, STEPS = 3, 2
TIMEOUT = 60
"""Seconds after which a copy ends, so that a test that waits for it fails instead of hanging."""


def threads() -> None:
    """Use one history in every thread; check that the results are complete and separate and that the process state is
    unchanged."""
    seen: list[str] = []
    sys.addaudithook(lambda event, _: seen.append(event) if event in FORBIDDEN else None)
    handlers = [signal.getsignal(number) for number in range(1, 30)]
    mask = os.umask(0o022)
    history = EnvHistory.open(".")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(STEPS):
                intent = f"thread {number} step {step}"
                Path(f"file-{number}").write_text(intent)
                moment = history.capture(intent)
                assert history.read_file(moment, f"file-{number}").decode() == intent
                history.note(f"of {intent}", moment)
                history.name(f"name-{number}-{step}", moment)
                history.attach(moment, conversation=[intent])
                assert history.resolve(f"name-{number}-{step}").id == moment.id
                assert history.get(moment).conversation == [intent]
                assert history.diff(moment, moment).files == ()
                history.log(limit=3)
        except BaseException as error:
            failures.append(error)

    together(work, THREADS)
    assert not failures, failures
    log = history.log()
    expected = {f"thread {number} step {step}" for number in range(THREADS) for step in range(STEPS)}
    assert sorted(one.intent for one in log) == sorted(expected)
    for one in log:
        assert [remark.text for remark in one.remarks] == [f"of {one.intent}"]
        assert one.names == ("name-{}-{}".format(*one.intent.split()[1::2]),)
    # Restore in one thread while another compares.
    first = log[-1]
    together(lambda number: history.restore(first) if number == 0 else history.diff(first, "now"), 2)
    history.undo()
    assert history.diff(log[0], "now").files == ()
    assert not seen, seen
    assert handlers == [signal.getsignal(number) for number in range(1, 30)]
    assert os.umask(mask) == 0o022


def forks() -> None:
    """Fork while a thread captures; check that no copy keeps a lock and that no child has to wait."""
    history = EnvHistory.open(".")
    asleep, awake = os.pipe()
    going = threading.Event()
    done = threading.Event()
    failures: list[BaseException] = []

    def captures() -> None:
        try:
            for number in range(6):
                Path("file").write_text(str(number))
                history.capture(f"capture {number}")
                going.set()
        except BaseException as error:
            failures.append(error)
        finally:
            going.set()
            done.set()

    thread = threading.Thread(target=captures)
    thread.start()
    going.wait()
    children = []
    while not done.is_set():
        children.append(sleeper(asleep, awake))
    thread.join()
    assert not failures, failures
    assert children
    moment = history.capture("while every copy sleeps", waiting=refuse)
    reader = history.reader(moment.snapshot)  # type: ignore[arg-type]
    assert b"".join(reader.read(b"file")) == b"5"  # type: ignore[arg-type]
    children.append(sleeper(asleep, awake))
    children.append(one_that_lets_go(reader.close))  # type: ignore[arg-type]
    reader.close()  # git ends when the last copy of its pipe is closed
    place = os.path.join(history.repository.state, "a lock")
    with locked(place):
        children.append(sleeper(asleep, awake))
    with try_lock(place) as mine:
        assert mine, "a copy keeps the lock"
    os.close(awake)
    assert {os.waitpid(child, 0)[1] for child in children} == {0}, "a wait for a copy timed out"


def copies() -> None:
    """Use the open history in copies of the host, concurrently with each other and with the host."""
    history = EnvHistory.open(".")
    history.capture("before the copies")
    children = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                Path(f"copy-{number}").write_text("mine")
                moment = history.capture(f"copy {number}")
                history.note("by a copy", moment)
                status = 0 if history.read_file(moment, f"copy-{number}") == b"mine" else 2
            finally:
                os._exit(status)
        children.append(child)
    history.capture("the host")
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    found = {one.intent: [remark.text for remark in one.remarks] for one in history.log()}
    assert found == {
        "before the copies": [],
        "the host": [],
        **{f"copy {number}": ["by a copy"] for number in range(3)},
    }


def sleeper(asleep: int, awake: int) -> int:
    """Fork a copy that does nothing until the host closes its end of the pipe."""
    there, begun = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(awake)
        os.write(begun, b".")
        os._exit(0 if select.select([asleep], [], [], TIMEOUT)[0] else 1)
    os.read(there, 1)
    os.close(there)
    os.close(begun)
    return child


def one_that_lets_go(let_go: Callable[[], object]) -> int:
    """Fork a copy that opens files and then closes what the host had open; its own files must stay open."""
    child = os.fork()
    if child == 0:
        mine = [os.open("file", os.O_RDONLY) for _ in range(50)]
        status = 1
        try:
            let_go()
            gc.collect()
            status = 0 if [os.fstat(one).st_size for one in mine] else 2
        finally:
            os._exit(status)
    return child


def refuse() -> None:
    """Fail: no other process is involved, so a wait can only be for a copy."""
    raise EnvhistError("a copy of the host keeps the lock")


def together(work: Callable[[int], object], count: int) -> None:
    """Run work in a number of threads that start together."""
    start = threading.Barrier(count)

    def begin(number: int) -> None:
        start.wait()
        work(number)

    running = [threading.Thread(target=begin, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def restores() -> None:
    """Restore different snapshots in threads concurrently, while another captures and copies are made."""
    history = EnvHistory.open(".")
    moments = []
    for number in range(2):
        for name in ("one", "two"):
            Path(name).write_text(f"{name} {number}")
        moments.append(history.capture(f"moment {number}"))
    asleep, awake = os.pipe()
    failures: list[BaseException] = []
    children: list[int] = []

    def work(number: int) -> None:
        try:
            if number < 2:
                assert history.restore(moments[number]).exact
            else:
                children.append(sleeper(asleep, awake))
                Path("mine").write_text("captured meanwhile")
                history.capture("meanwhile")
                children.append(sleeper(asleep, awake))
        except BaseException as error:
            failures.append(error)

    together(work, 3)
    assert not failures, failures
    # All files are from one snapshot, the one of the last restore.
    numbers = {Path(name).read_text().split()[1] for name in ("one", "two")}
    assert len(numbers) == 1, numbers
    # A restore may have removed the thread's file after the capture.
    assert any(holds(history, one, "mine") for one in history.log())
    history.capture("after all of it", waiting=refuse)
    assert history.restore(moments[0]).exact
    os.close(awake)
    assert {os.waitpid(child, 0)[1] for child in children} == {0}, "a wait for a copy timed out"


def holds(history: EnvHistory, snapshot: Snapshot, path: str) -> bool:
    """Return whether a snapshot has a file."""
    try:
        return bool(history.read_file(snapshot, path))
    except EnvhistError:
        return False


if __name__ == "__main__":
    {"threads": threads, "forks": forks, "copies": copies, "restores": restores}[sys.argv[1]]()
