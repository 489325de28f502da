"""Runs the workers of a capture: processes of our own that look, read and pack side by side.

A worker is an object whose methods yield frames. It lives in a forked child, in a spawned one where the caller is a
host program that must not be forked, or right here where a system has neither. Frames cross the pipe in `marshal`'s
format, which both ends of our own pipe may trust.
"""

from __future__ import annotations

import contextlib
import marshal
import mmap
import os
import select
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

LENGTH = struct.Struct("<I")
SLOTS = struct.Struct("<QQQ")
DONE, FRAME, FAILED = 0, 1, 2
TICKET = 4
MAX_TICKETS = 8_000
POLL_SECONDS = 0.1

Frame = tuple[object, ...]
Job = dict[str, object]


class Worker(Protocol):
    """What the pool needs to know of a worker: methods named by the pool's caller that yield frames."""

    def call(self, method: str, arguments: tuple[object, ...]) -> Iterator[Frame]: ...


class WorkerFailed(Exception):
    """A worker died, or met what it cannot work with; the message is for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Shared:
    """What all workers see at once: counters, a slot each, and the tickets for work that nobody owns."""

    def __init__(self, workers: int, descriptors: tuple[int, int, int] | None = None) -> None:
        self.workers = workers
        if descriptors is None:
            descriptors = (_counter_file(workers * SLOTS.size), *os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK))
        self.descriptors = descriptors
        self._file, self._reading, self._writing = descriptors
        self._memory = mmap.mmap(self._file, max(mmap.PAGESIZE, workers * SLOTS.size))
        self._cells = memoryview(self._memory).cast("Q")

    def count(self, worker: int, files: int, read: int, stored: int) -> None:
        SLOTS.pack_into(self._memory, worker * SLOTS.size, files, read, stored)

    def totals(self) -> tuple[int, int, int]:
        """Files and bytes read, and bytes stored, by all workers together."""
        cells = self._cells[: 3 * self.workers].tolist()
        return sum(cells[0::3]), sum(cells[1::3]), sum(cells[2::3])

    def offer(self, tickets: int) -> None:
        assert tickets <= MAX_TICKETS
        os.write(self._writing, b"".join(number.to_bytes(TICKET, "little") for number in range(tickets)))

    def take(self) -> int | None:
        """The number of a piece of work that is now the caller's; None where none is left."""
        try:
            ticket = os.read(self._reading, TICKET)
        except BlockingIOError:
            return None
        return int.from_bytes(ticket, "little") if ticket else None

    def close(self) -> None:
        self._cells.release()
        self._memory.close()
        for descriptor in self.descriptors:
            os.close(descriptor)


class Pool:
    """Some workers, and one way to ask them all."""

    def __init__(self, shared: Shared, lines: list[Line], tick: Callable[[], None] | None = None) -> None:
        self.shared = shared
        self.lines = lines
        self._tick = tick

    def ask_all(self, method: str, arguments: list[tuple[object, ...]]) -> Iterator[tuple[int, Frame]]:
        """Ask each worker; every frame that any of them yields, with its worker's number, as they come."""
        for line, words in zip(self.lines, arguments, strict=True):
            line.ask(method, words)
        waiting = dict(enumerate(self.lines))
        while waiting:
            for number in self._ready(waiting):
                kind, *frame = waiting[number].receive()
                if kind == FRAME:
                    yield number, tuple(frame)
                elif kind == DONE:
                    del waiting[number]
                else:
                    raise WorkerFailed(str(frame[0]), str(frame[1]))

    def ask_each(self, method: str, *arguments: object) -> Iterator[tuple[int, Frame]]:
        """Ask all workers the same."""
        return self.ask_all(method, [arguments] * len(self.lines))

    def _ready(self, waiting: dict[int, Line]) -> list[int]:
        descriptors = {
            line.descriptor: number for number, line in waiting.items() if line.descriptor is not None
        }
        if not descriptors:
            return list(waiting)[:1]
        ready: list[int] = []
        while not ready:
            ready = [descriptors[fd] for fd in select.select(list(descriptors), [], [], POLL_SECONDS)[0]]
            if self._tick is not None:
                self._tick()
        return ready

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        for line in self.lines:
            line.close()
        self.shared.close()


class Line(Protocol):
    """One worker, as its caller sees it."""

    @property
    def descriptor(self) -> int | None: ...

    def ask(self, method: str, arguments: tuple[object, ...]) -> None: ...

    def receive(self) -> Frame: ...

    def close(self) -> None: ...


class HereLine:
    """A worker in this very process."""

    descriptor = None

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._frames: Iterator[Frame] = iter(())

    def ask(self, method: str, arguments: tuple[object, ...]) -> None:
        self._frames = self._worker.call(method, arguments)

    def receive(self) -> Frame:
        for frame in self._frames:
            return (FRAME, *frame)
        return (DONE,)

    def close(self) -> None:
        pass


class ChildLine:
    """A worker in a child process."""

    def __init__(self, child: int, asking: int, answering: int) -> None:
        self._child = child
        self._asking = asking
        self._answering = answering

    @property
    def descriptor(self) -> int:
        return self._answering

    def ask(self, method: str, arguments: tuple[object, ...]) -> None:
        try:
            send(self._asking, (method, arguments))
        except BrokenPipeError as gone:
            raise WorkerFailed("died", "a worker process ended unexpectedly") from gone

    def receive(self) -> Frame:
        try:
            return receive(self._answering)
        except EOFError as gone:
            raise WorkerFailed("died", "a worker process ended unexpectedly") from gone

    def close(self) -> None:
        os.close(self._asking)
        os.close(self._answering)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)


def fork_line(make: Callable[[], Worker], others: list[Line]) -> ChildLine:
    """A worker in a forked child; `others` are the lines that the child must not hold open."""
    asking, answering = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(asking[1])
            os.close(answering[0])
            for line in others:
                if isinstance(line, ChildLine):
                    os.close(line._asking)
                    os.close(line._answering)
            serve(make, asking[0], answering[1])
        os._exit(0)
    os.close(asking[0])
    os.close(answering[1])
    return ChildLine(child, asking[1], answering[0])


def spawn_line(module: str, job: Job, shared: Shared, number: int) -> ChildLine:
    """A worker in a fresh interpreter, for callers that must not be forked; it is given its job as a first frame."""
    asking, answering = os.pipe(), os.pipe()
    kept = [asking[0], answering[1], *shared.descriptors]
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    words = [sys.executable, "-m", module, *map(str, kept), str(shared.workers), str(number)]
    child = os.posix_spawn(sys.executable, words, _importable_here())
    for descriptor in kept:
        os.set_inheritable(descriptor, False)
    os.close(asking[0])
    os.close(answering[1])
    send(asking[1], tuple(job.items()))
    return ChildLine(child, asking[1], answering[0])


def _importable_here() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def serve(make: Callable[[], Worker], asking: int, answering: int) -> None:
    """Answer questions until the other end closes; the parent alone decides what a signal means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    worker = make()
    while True:
        try:
            method, arguments = receive(asking)
        except EOFError:
            return
        try:
            for frame in worker.call(str(method), arguments):  # type: ignore[arg-type]
                send(answering, (FRAME, *frame))
            send(answering, (DONE,))
        except BrokenPipeError:
            return
        except Exception as error:
            send(answering, (FAILED, type(error).__name__, str(error)))


def send(descriptor: int, frame: Frame) -> None:
    body = marshal.dumps(frame)  # type: ignore[arg-type]
    view = memoryview(LENGTH.pack(len(body)) + body)
    while view:
        view = view[os.write(descriptor, view) :]


def receive(descriptor: int) -> Frame:
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


def _counter_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("git-envhist", os.MFD_CLOEXEC)
    else:
        import tempfile  # loaded only where there are no memory files

        descriptor, name = tempfile.mkstemp()
        os.unlink(name)
    os.ftruncate(descriptor, max(mmap.PAGESIZE, size))
    return descriptor
