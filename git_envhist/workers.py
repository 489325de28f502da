"""The lines to workers: one in this process, in a forked child, or in an interpreter of its own.

Questions and frames cross a pipe in `marshal`'s format, each with its length in front; both ends of our own pipe may
trust it. Frames travel together: every write wakes the parent, and in a first capture there is one for each of ten
thousand directories. Nobody waits for a single one, since how far the work has come stands in shared memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import marshal
import mmap
import os
import pickle
import select
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from git_envhist.errors import Damaged, EnvhistError, SealingError, StorageFull, WorkingTreeGone
from git_envhist.platform import (
    COPIES,
    STOPPING,
    anonymous_file,
    core_count,
    pipe_ours,
    save_current_directory,
    signals_held_back,
    worker_mode,
)

# Asks the workers of a capture: processes of our own that look, read and pack side by side.
#
# A worker is an object whose methods yield frames. It lives in a forked child, in a spawned one where the caller is a
# host program that must not be forked, or right here where a system has neither (`lines`).

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


PASSED_ERROR_TYPES: dict[str, type[EnvhistError]] = {
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
    if kind in PASSED_ERROR_TYPES:
        return PASSED_ERROR_TYPES[kind](message, hint=hint)
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


# Shares work among processes that are copies of this one: what there is to do need not be sent, only what came of it.
#
# Each takes the next piece of work from a pipe that all have open, and writes what came of it into a file of its own,
# which is read once it has ended. A pipe, for it gives each byte once: a file in memory that two read at the same
# moment gives both the same. Where a process may not be copied, inside a host program, the work is done here.

T = TypeVar("T")
R = TypeVar("R")
PLACE = struct.Struct("=QQ")
WORKER_KILLED_MESSAGE = "a worker of the restore was killed"
MAX_AT_ONCE, WORTH_A_PROCESS = 256, 128
"""Fewer things are done before a process is ready to do them."""
SHARES = 6
"""So many portions for each process: whoever is done first takes one more."""


def portion(things: int) -> int:
    """How many things are one piece of work."""
    return max(WORTH_A_PROCESS, min(MAX_AT_ONCE, -(-things // (SHARES * core_count()))))


def share_out(
    work: Sequence[T],
    begin: Callable[[], Any],
    do: Callable[[Any, T], R],
    end: Callable[[Any], Any],
    *,
    how: str,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[list[R], list[Any]]:
    """Do every piece of work; the results in their order, and what `end` gave for each process.

    `begin` makes what a process works with, `end` lets go of it. `how` is `fork`, or anything else for here. What is to
    be done `meanwhile` is done by this process; where it fails, so does all.
    """
    count = min(core_count(), len(work)) if worker_mode(how) == "fork" else 1
    if count < 2:
        meanwhile()
        tool = begin()
        try:
            return [do(tool, piece) for piece in work], [end(tool)]
        except BaseException:
            with suppress(Exception):
                end(tool)
            raise
    return _share_among(count, work, begin, do, end, meanwhile)


def share_stream(
    stream: Iterable[T],
    begin: Callable[[], Any],
    do: Callable[[Any, T], Any],
    end: Callable[[Any], R],
    *,
    how: str,
) -> list[R]:
    """Do every piece of work of a stream, which is made here while the first pieces are done; what `end` gave for each.

    Pieces are sent to the processes: they are to be small.
    """
    count = core_count() if worker_mode(how) == "fork" else 1
    if count < 2:
        tool = begin()
        try:
            for piece in stream:
                do(tool, piece)
            return [end(tool)]
        except BaseException:
            with suppress(Exception):
                end(tool)
            raise
    return _stream_among(count, stream, begin, do, end)


def _share_among(
    count: int,
    work: Sequence[T],
    begin: Callable[[], Any],
    do: Callable[[Any, T], R],
    end: Callable[[Any], Any],
    meanwhile: Callable[[], None],
) -> tuple[list[R], list[Any]]:
    def begin_list() -> tuple[Any, list[tuple[int, R]]]:
        return begin(), []

    def do_one(begun: tuple[Any, list[tuple[int, R]]], number: int) -> None:
        tool, done = begun
        done.append((number, do(tool, work[number])))

    # What there is to do is here and there alike: its number is all that is sent.
    said = _stream_among(
        count, range(len(work)), begin_list, do_one, lambda begun: (begun[1], end(begun[0])), meanwhile
    )
    results = {number: result for done, _ in said for number, result in done}
    return [results[number] for number in range(len(work))], [ended for _, ended in said]


def _stream_among(
    count: int,
    stream: Iterable[T],
    begin: Callable[[], Any],
    do: Callable[[Any, T], Any],
    end: Callable[[Any], R],
    meanwhile: Callable[[], None] = lambda: None,
) -> list[R]:
    sending = _Sending()

    def be(parent: int) -> Any:
        # The end of the work is when nobody can give any more.
        sending.stop_giving()
        tool, done = begin(), 0
        for piece in sending.receive(parent):
            do(tool, piece)
            done += 1
        return done, end(tool)

    def lead() -> None:
        sending.give_all(stream)
        meanwhile()

    try:
        said = _among(count, be, lead)
    finally:
        sending.close()
    if sum(done for done, _ in said) != sending.sent:
        raise EnvhistError(WORKER_KILLED_MESSAGE)
    return [ended for _, ended in said]


class _Sending:
    """Pieces on their way to whoever takes the next: their bytes in a file, where each stands through a pipe."""

    def __init__(self) -> None:
        self.sent = 0
        self._pieces = anonymous_file()
        self._taking, self._giving = os.pipe()

    def give_all(self, stream: Iterable[Any]) -> None:
        """Send what the stream yields, as far as anybody is left to take it."""
        # Let go of by its name before it is closed: a signal between the two would have it closed twice.
        taking, self._taking = self._taking, -1
        os.close(taking)
        at = 0
        for piece in stream:
            self.sent += 1
            data = pickle.dumps(piece, pickle.HIGHEST_PROTOCOL)
            os.pwrite(self._pieces, data, at)
            try:
                os.write(self._giving, PLACE.pack(at, len(data)))
            except BrokenPipeError:
                break  # nobody is left, and why is told by what they say
            at += len(data)
        self.stop_giving()

    def stop_giving(self) -> None:
        giving, self._giving = self._giving, -1
        os.close(giving)

    def receive(self, parent: int) -> Iterator[Any]:
        """Take pieces until there are no more; what was sent before the parent was killed waits for nobody."""
        # Written whole and read whole, as so little is: nobody gets a part of another's.
        while (place := os.read(self._taking, PLACE.size)) and os.getppid() == parent:
            at, length = PLACE.unpack(place)
            yield pickle.loads(os.pread(self._pieces, length, at))

    def close(self) -> None:
        for descriptor in (self._pieces, self._taking, self._giving):
            if descriptor >= 0:
                os.close(descriptor)


def _among(count: int, be: Callable[[int], Any], lead: Callable[[], None]) -> list[Any]:
    """What `be` gave in each of so many copies of this process, while this one leads."""
    outputs = [anonymous_file() for _ in range(count)]
    children: list[int] = []
    parent = os.getpid()
    try:
        # What is only read is not to be copied because a collection writes into its heads.
        gc.freeze()
        for output in outputs:
            with signals_held_back():
                child = COPIES.fork()
                if child == 0:
                    _be_a_worker(output, lambda: be(parent))
                children.append(child)
        lead()
        while children:
            os.waitpid(children[0], 0)
            children.pop(0)
        return _collect(outputs)
    finally:
        gc.unfreeze()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(child, 0)
        for descriptor in outputs:
            os.close(descriptor)


def _be_a_worker(output: int, be: Callable[[], Any]) -> None:
    """Never returns: what the parent has open, and what it would do at its end, is none of a worker's business."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        _give(output, be())
    except BaseException as error:  # whatever it is, the parent raises it
        _give(output, error)
    finally:
        os._exit(0)


def _give(output: int, what: Any) -> None:
    try:
        data = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
        if isinstance(what, BaseException):
            pickle.loads(data)
    except Exception:  # an error that cannot be sent is told in words
        data = pickle.dumps(EnvhistError(f"a worker of the restore failed: {what!r}"))
    done = 0
    while done < len(data):
        done += os.write(output, data[done:])


def _collect(outputs: list[int]) -> list[Any]:
    found = []
    for output in outputs:
        os.lseek(output, 0, os.SEEK_SET)
        with open(output, "rb", closefd=False) as file:
            data = file.read()
        said = pickle.loads(data) if data else EnvhistError(WORKER_KILLED_MESSAGE)
        if isinstance(said, BaseException):
            raise said
        found.append(said)
    return found
