"""Asks the workers of a capture: processes of our own that look, read and pack side by side.

A worker is an object whose methods yield frames. It lives in a forked child, in a spawned one where the caller is a
host program that must not be forked, or right here where a system has neither (`lines`).
"""

from __future__ import annotations

import mmap
import os
import select
import struct
from collections.abc import Callable, Iterator
from typing import Protocol

from git_envhist.errors import Damaged, EnvhistError, SealingError, StorageFull, WorkingTreeGone
from git_envhist.system import anonymous_file, pipe_ours

SLOTS = struct.Struct("<QQQ")
DONE, FRAME, FAILED = 0, 1, 2
TICKET = 4
MAX_TICKETS = 1_000
"""So many fit into the smallest pipe that a kernel gives, a page of 4,096 bytes, to a user who has many of them."""
POLL_MS = 100

Frame = tuple[object, ...]
Job = dict[str, object]


class Worker(Protocol):
    """What the pool needs to know of a worker: methods named by the pool's caller that yield frames."""

    def call(self, method: str, arguments: tuple[object, ...]) -> Iterator[Frame]: ...

    def close(self) -> None: ...


class WorkerFailed(EnvhistError):
    """A worker died, or met what it cannot work with."""

    code = "worker-failed"


TOLD: dict[str, type[EnvhistError]] = {
    kind.__name__: kind for kind in (Damaged, SealingError, StorageFull, WorkingTreeGone)
}
"""The errors that mean something to the caller keep their class on the way through the pipe."""


class SharedCounters:
    """What all workers see at once: counters, a slot each, and the tickets for work that nobody owns."""

    def __init__(self, workers: int, descriptors: tuple[int, int, int] | None = None) -> None:
        self.workers = workers
        if descriptors is None:
            descriptors = (_counter_file(workers * SLOTS.size), *_pipe_without_waiting())
        self.descriptors = descriptors
        self._file, self._reading, self._writing = descriptors
        self._memory = mmap.mmap(self._file, max(mmap.PAGESIZE, workers * SLOTS.size))
        self._cells = memoryview(self._memory).cast("Q")
        self._stored = self._cells[2 : 3 * workers : 3]

    def count(self, worker: int, files: int, read: int, stored: int) -> None:
        cells, slot = self._cells, 3 * worker
        cells[slot], cells[slot + 1], cells[slot + 2] = files, read, stored

    def totals(self) -> tuple[int, int, int]:
        """Files and bytes read, and bytes stored, by all workers together."""
        cells = self._cells[: 3 * self.workers].tolist()
        return sum(cells[0::3]), sum(cells[1::3]), sum(cells[2::3])

    def stored(self) -> int:
        """Bytes stored by all workers together."""
        return sum(self._stored)

    def offer(self, tickets: int) -> None:
        """Lay out tickets; those of the last time are all taken."""
        # A pipe gives each byte once. A memory file does not: two processes that read it at the same moment can both
        # be given the same place.
        assert tickets <= MAX_TICKETS
        told = b"".join(number.to_bytes(TICKET, "little") for number in range(tickets))
        if os.write(self._writing, told) != len(told):
            raise WorkerFailed("the work could not be shared out", hint="run the command again")

    def take(self) -> int | None:
        """The number of a piece of work that is now the caller's; None where none is left."""
        try:
            ticket = os.read(self._reading, TICKET)
        except BlockingIOError:
            return None
        return int.from_bytes(ticket, "little") if ticket else None

    def close(self) -> None:
        self._stored.release()
        self._cells.release()
        self._memory.close()
        for descriptor in self.descriptors:
            os.close(descriptor)


class Pool:
    """Some workers, and one way to ask them all."""

    def __init__(
        self, shared: SharedCounters, lines: list[WorkerHandle], tick: Callable[[], None] | None = None
    ) -> None:
        self.shared = shared
        self.lines = lines
        self._tick = tick

    def ask_all(self, method: str, arguments: list[tuple[object, ...]]) -> Iterator[tuple[int, Frame]]:
        """Ask each worker now; every frame that any of them yields, with its worker's number, as they come."""
        for line, words in zip(self.lines, arguments, strict=True):
            line.ask(method, words)
        return self._answers()

    def _answers(self) -> Iterator[tuple[int, Frame]]:
        waiting = dict(enumerate(self.lines))
        watch = _Poller(waiting, self._tick)
        while waiting:
            for number in watch.ready():
                for kind, *frame in waiting[number].receive():
                    if kind == FRAME:
                        yield number, tuple(frame)
                    elif kind == DONE:
                        watch.forget(number)
                    else:
                        raise _failure(str(frame[0]), str(frame[1]), str(frame[2]) if frame[2] else None)

    def ask_each(self, method: str, *arguments: object) -> Iterator[tuple[int, Frame]]:
        """Ask all workers the same."""
        return self.ask_all(method, [arguments] * len(self.lines))

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        for line in self.lines:
            line.close()
        self.shared.close()


class _Poller:
    """Tells which of the lines that are waited for have something to say."""

    def __init__(self, waiting: dict[int, WorkerHandle], tick: Callable[[], None] | None) -> None:
        self._waiting = waiting
        self._tick = tick
        self._numbers = {
            line.descriptor: number for number, line in waiting.items() if line.descriptor is not None
        }
        # Not select(): a host program may have more descriptors than that can take.
        self._poll = select.poll()
        for descriptor in self._numbers:
            self._poll.register(descriptor, select.POLLIN)

    def ready(self) -> list[int]:
        if not self._numbers:
            return list(self._waiting)[:1]
        while True:
            found = [self._numbers[descriptor] for descriptor, _ in self._poll.poll(POLL_MS)]
            if self._tick is not None:
                self._tick()
            if found:
                return found

    def forget(self, number: int) -> None:
        """The line has said all that it was asked for."""
        descriptor = self._waiting.pop(number).descriptor
        if descriptor is not None:
            del self._numbers[descriptor]
            self._poll.unregister(descriptor)


class WorkerHandle(Protocol):
    """One worker, as its caller sees it."""

    @property
    def descriptor(self) -> int | None: ...

    def ask(self, method: str, arguments: tuple[object, ...]) -> None: ...

    def receive(self) -> list[Frame]:
        """Frames that have come, one at least."""
        ...

    def close(self) -> None: ...


def _failure(kind: str, message: str, hint: str | None) -> EnvhistError:
    if kind in TOLD:
        return TOLD[kind](message, hint=hint)
    return WorkerFailed(f"a worker process failed: {message or kind} ({kind})", hint=hint)


def _pipe_without_waiting() -> tuple[int, int]:
    reading, writing = pipe_ours()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


def _counter_file(size: int) -> int:
    descriptor = anonymous_file()
    os.ftruncate(descriptor, max(mmap.PAGESIZE, size))
    return descriptor
