"""The lines to workers: one in this process, in a forked child, or in an interpreter of its own.

Questions and frames cross a pipe in `marshal`'s format, each with its length in front; both ends of our own pipe may
trust it. Frames travel together: every write wakes the parent, and in a first capture there is one for each of ten
thousand directories. Nobody waits for a single one, since how far the work has come stands in shared memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from typing import cast

from git_envhist.capture.byname import save_current_directory
from git_envhist.capture.pool import (
    DONE,
    FAILED,
    FRAME,
    Frame,
    Job,
    SharedCounters,
    Worker,
    WorkerFailed,
    WorkerHandle,
)
from git_envhist.system import COPIES, STOPPING, pipe_ours, signals_held_back

FIRST, ABOVE = 3, 32
"""Descriptors of a spawned worker begin there; all that it is given fit between the two."""
LENGTH = struct.Struct("<I")

BATCH = 1 << 16
"""So many bytes of frames are written at once."""
WIDE = 1 << 20
"""A pipe of this size lets a worker go on while its parent does something else."""


class InlineWorker:
    """A worker in this very process."""

    descriptor = None

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._go_back = save_current_directory()
        self._frames: Iterator[Frame] = iter(())

    def ask(self, method: str, arguments: tuple[object, ...]) -> None:
        self._frames = self._worker.call(method, arguments)

    def receive(self) -> list[Frame]:
        for frame in self._frames:
            return [(FRAME, *frame)]
        return [(DONE,)]

    def close(self) -> None:
        self._worker.close()
        # It went through the environment in our own process, which stands where it stood again.
        self._go_back()


class ChildWorker:
    """A worker in a child process."""

    def __init__(self, child: int, asking: int, answering: int) -> None:
        self._child = child
        self._asking = asking
        self._answering = answering
        self._inbox = Inbox(answering)

    @property
    def descriptor(self) -> int:
        return self._answering

    def ask(self, method: str, arguments: tuple[object, ...]) -> None:
        try:
            send(self._asking, (method, arguments))
        except BrokenPipeError as gone:
            raise _died() from gone

    def receive(self) -> list[Frame]:
        try:
            return self._inbox.receive()
        except EOFError as gone:
            raise _died() from gone

    def let_go(self) -> None:
        """Close our ends of the pipes."""
        os.close(self._asking)
        os.close(self._answering)

    def close(self) -> None:
        self.let_go()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)


def _died() -> WorkerFailed:
    return WorkerFailed("a worker process ended unexpectedly", hint="run the command again")


def fork_line(make: Callable[[], Worker], others: list[WorkerHandle]) -> ChildWorker:
    """A worker in a forked child; `others` are the lines that the child must not hold open."""
    asking, answering = pipe_ours(), _wide_pipe()
    with signals_held_back():
        child = COPIES.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.close(asking[1])
                os.close(answering[0])
                for line in others:
                    if isinstance(line, ChildWorker):
                        line.let_go()
                serve(make, asking[0], answering[1])
            os._exit(0)
    os.close(asking[0])
    os.close(answering[1])
    return ChildWorker(child, asking[1], answering[0])


def spawn_line(module: str, job: Job, shared: SharedCounters, number: int) -> ChildWorker:
    """A worker in a fresh interpreter, for callers that must not be forked; it is given its job as a first frame."""
    asking, answering = pipe_ours(), _wide_pipe()
    # No descriptor of the host program becomes inheritable for it, since another thread may start something: each is
    # given a number above all that the child is to find them under.
    kept = [
        fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, ABOVE)
        for one in (asking[0], answering[1], *shared.descriptors)
    ]
    found = range(FIRST, FIRST + len(kept))
    handed = [(os.POSIX_SPAWN_DUP2, one, there) for one, there in zip(kept, found, strict=True)]
    # -P: a `struct.py` in the directory that the host program stands in is none of ours to run.
    words = [sys.executable, "-P", "-m", module, *map(str, found), str(shared.workers), str(number)]
    try:
        child = os.posix_spawn(
            sys.executable, words, _importable_here(), file_actions=handed, setsigmask=STOPPING
        )
    finally:
        for descriptor in kept:
            os.close(descriptor)
    os.close(asking[0])
    os.close(answering[1])
    line = ChildWorker(child, asking[1], answering[0])
    try:
        send(asking[1], tuple(job.items()))
    except BrokenPipeError as gone:
        line.close()
        raise _died() from gone
    return line


def _importable_here() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def serve(make: Callable[[], Worker], asking: int, answering: int) -> None:
    """Answer questions until the other end closes; the parent alone decides what a signal means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    # A worker that cannot start reports the reason as the answer to its first question.
    worker, failure = _made(make)
    outbox = Outbox(answering)
    while True:
        try:
            method, arguments = receive(asking)
        except EOFError:
            return
        try:
            if worker is None:
                raise cast(Exception, failure)
            for frame in worker.call(str(method), arguments):  # type: ignore[arg-type]
                outbox.put((FRAME, *frame))
            outbox.put((DONE,))
            outbox.flush()
        except BrokenPipeError:
            return
        except Exception as error:
            outbox.put((FAILED, type(error).__name__, str(error), getattr(error, "hint", None)))
            outbox.flush()


def _made(make: Callable[[], Worker]) -> tuple[Worker | None, Exception | None]:
    try:
        return make(), None
    except Exception as error:
        return None, error


class Outbox:
    """Frames on their way out, many at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = bytearray()

    def put(self, frame: Frame) -> None:
        self._held += _packed(frame)
        if len(self._held) >= BATCH:
            self.flush()

    def flush(self) -> None:
        _write(self._descriptor, self._held)
        self._held = bytearray()


class Inbox:
    """Frames as they come in, many at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = bytearray()

    def receive(self) -> list[Frame]:
        """All the frames that are there, one at least; EOFError where none will come."""
        while not (frames := self._whole()):
            block = os.read(self._descriptor, WIDE)
            if not block:
                raise EOFError
            self._held += block
        return frames

    def _whole(self) -> list[Frame]:
        frames: list[Frame] = []
        at, last = 0, len(self._held) - LENGTH.size
        with memoryview(self._held) as view:
            while at <= last:
                (length,) = LENGTH.unpack_from(view, at)
                end = at + LENGTH.size + length
                if end > len(view):
                    break
                frames.append(marshal.loads(view[at + LENGTH.size : end]))
                at = end
        del self._held[:at]
        return frames


def send(descriptor: int, frame: Frame) -> None:
    """Write one frame by itself."""
    _write(descriptor, _packed(frame))


def _packed(frame: Frame) -> bytes:
    body = marshal.dumps(frame)  # type: ignore[arg-type]
    return LENGTH.pack(len(body)) + body


def _write(descriptor: int, data: bytes | bytearray) -> None:
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.write(descriptor, view[done:])


def _wide_pipe() -> tuple[int, int]:
    ends = pipe_ours()
    with contextlib.suppress(AttributeError, OSError):  # not on every system, and not without limit
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, WIDE)
    return ends


def receive(descriptor: int) -> Frame:
    """Read one frame, and not a byte beyond it."""
    (length,) = LENGTH.unpack(_exactly(descriptor, LENGTH.size))
    frame = marshal.loads(_exactly(descriptor, length))
    assert isinstance(frame, tuple)
    return frame


def _exactly(descriptor: int, size: int) -> bytes:
    chunks = []
    while size:
        chunk = os.read(descriptor, min(size, 1 << 20))
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
