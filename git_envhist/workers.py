"""Worker processes: forked children, spawned interpreters, or the same process.

A worker's methods yield frames. Calls and frames cross pipes in `marshal`'s format, each with its length in front.
Frames are sent in batches, because every write wakes the parent and a first capture sends one per directory; progress
is in shared memory instead. `Pool` serves captures: long-lived workers that are called several times.

`share_out` and `share_stream` serve restores: copies of this process that are called once and take pieces of work from
a queue. Their results are pickled into frames, because they are values of any class.

A host program must not be forked: its workers are spawned or run inline.
"""

from __future__ import annotations

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

from git_envhist.disk import read_exactly, write_all
from git_envhist.errors import Damaged, EnvhistError, SealingError, StorageFull, WorkingTreeGone
from git_envhist.platform import (
    FORK_GUARD,
    STOPPING,
    anonymous_file,
    core_count,
    guarded_pipe,
    save_current_directory,
    signals_blocked,
    worker_mode,
)

# Workers of a capture.

SLOTS = struct.Struct("<QQQ")
DONE, FRAME, FAILED = 0, 1, 2
TICKET = 4
MAX_TICKETS = 1_000
"""The tickets that fit into the smallest pipe the kernel gives to a user with many pipes: one page of 4,096 bytes."""
POLL_MS = 100

Frame = tuple[object, ...]
Job = dict[str, object]


class Worker(Protocol):
    """A worker as the pool uses it: its methods, chosen by the pool's caller, yield frames."""

    def call(self, method: str, arguments: tuple[object, ...]) -> Iterator[Frame]: ...

    def close(self) -> None: ...


class WorkerFailed(EnvhistError):
    """A worker died or raised an unexpected error."""

    code = "worker-failed"


PASSED_ERROR_TYPES: dict[str, type[EnvhistError]] = {
    kind.__name__: kind for kind in (Damaged, SealingError, StorageFull, WorkingTreeGone)
}
"""Errors that keep their class when they cross the pipe, because callers handle them."""


class SharedCounters:
    """Memory shared by all workers: a slot of counters for each, and tickets for work that any of them may take."""

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
        """Return the files and bytes read, and the bytes stored, by all workers together."""
        cells = self._cells[: 3 * self.workers].tolist()
        return sum(cells[0::3]), sum(cells[1::3]), sum(cells[2::3])

    def stored(self) -> int:
        """Return the bytes stored by all workers together."""
        return sum(self._stored)

    def offer(self, tickets: int) -> None:
        """Make tickets available; all earlier ones must be taken."""
        # A pipe gives each byte to one reader. A memory file does not: two concurrent readers can get the same
        # offset.
        assert tickets <= MAX_TICKETS
        data = b"".join(number.to_bytes(TICKET, "little") for number in range(tickets))
        if os.write(self._writing, data) != len(data):
            raise WorkerFailed("cannot distribute work to the worker processes", hint="run the command again")

    def take(self) -> int | None:
        """Take a ticket and return its number; None if none is left."""
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
    """A fixed number of workers that are called together."""

    def __init__(
        self, shared: SharedCounters, lines: list[WorkerHandle], tick: Callable[[], None] | None = None
    ) -> None:
        self.shared = shared
        self.lines = lines
        self._tick = tick

    def ask_all(self, method: str, arguments: list[tuple[object, ...]]) -> Iterator[tuple[int, Frame]]:
        """Call a method of every worker; yield each frame, with the number of its worker, as it arrives."""
        for line, words in zip(self.lines, arguments, strict=True):
            line.ask(method, words)
        return frames_of(self.lines, self._tick)

    def ask_each(self, method: str, *arguments: object) -> Iterator[tuple[int, Frame]]:
        """Call a method of every worker with the same arguments."""
        return self.ask_all(method, [arguments] * len(self.lines))

    def close(self) -> None:
        """Kill the workers."""
        for line in self.lines:
            line.close()
        self.shared.close()


def frames_of(
    lines: list[WorkerHandle], tick: Callable[[], None] | None = None
) -> Iterator[tuple[int, Frame]]:
    """Yield the frames of workers that were asked, each with the number of its worker, as they arrive."""
    waiting = dict(enumerate(lines))
    watch = _Poller(waiting, tick)
    while waiting:
        for number in watch.ready():
            for kind, *frame in waiting[number].receive():
                if kind == FRAME:
                    yield number, tuple(frame)
                elif kind == DONE:
                    watch.forget(number)
                else:
                    raise _failure(str(frame[0]), str(frame[1]), str(frame[2]) if frame[2] else None)


class _Poller:
    """Wait for frames of the workers that have not finished."""

    def __init__(self, waiting: dict[int, WorkerHandle], tick: Callable[[], None] | None) -> None:
        self._waiting = waiting
        self._tick = tick
        self._numbers = {
            line.descriptor: number for number, line in waiting.items() if line.descriptor is not None
        }
        # select() cannot take the high descriptors that a host program may have.
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
        """Stop waiting for a worker that has finished."""
        descriptor = self._waiting.pop(number).descriptor
        if descriptor is not None:
            del self._numbers[descriptor]
            self._poll.unregister(descriptor)


class WorkerHandle(Protocol):
    """One worker, as the pool sees it."""

    @property
    def descriptor(self) -> int | None: ...

    def ask(self, method: str, arguments: tuple[object, ...]) -> None: ...

    def receive(self) -> list[Frame]:
        """Return the frames that have arrived, at least one; wait for it."""
        ...

    def close(self) -> None: ...


def _failure(kind: str, message: str, hint: str | None) -> EnvhistError:
    if kind in PASSED_ERROR_TYPES:
        return PASSED_ERROR_TYPES[kind](message, hint=hint)
    return WorkerFailed(f"a worker process failed: {message or kind} ({kind})", hint=hint)


def _pipe_without_waiting() -> tuple[int, int]:
    reading, writing = guarded_pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


def _counter_file(size: int) -> int:
    descriptor = anonymous_file()
    os.ftruncate(descriptor, max(mmap.PAGESIZE, size))
    return descriptor


FIRST, ABOVE = 3, 32
"""The numbers of a spawned worker's descriptors begin at FIRST and end below ABOVE."""
LENGTH = struct.Struct("<I")

BATCH = 1 << 16
"""The size at which buffered frames are written."""
WIDE = 1 << 20
"""A pipe of this size lets a worker continue while its parent is busy."""


class InlineWorker:
    """A worker in this process."""

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
        # The worker has changed the current directory of this process.
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
        except BrokenPipeError as error:
            raise _died() from error

    def receive(self) -> list[Frame]:
        try:
            return self._inbox.receive()
        except EOFError as error:
            raise _died() from error

    def close_pipes(self) -> None:
        """Close this process's ends of the pipes."""
        os.close(self._asking)
        os.close(self._answering)

    def close(self) -> None:
        self.close_pipes()
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._child, 0)


def _died() -> WorkerFailed:
    return WorkerFailed("a worker process ended unexpectedly", hint="run the command again")


def fork_worker(make: Callable[[], Worker], others: list[WorkerHandle]) -> ChildWorker:
    """Fork a worker; `others` are handles whose pipes the child must close."""
    asking, answering = guarded_pipe(), _wide_pipe()
    with signals_blocked():
        child = FORK_GUARD.fork()
        if child == 0:
            with suppress(BaseException):
                os.close(asking[1])
                os.close(answering[0])
                for line in others:
                    if isinstance(line, ChildWorker):
                        line.close_pipes()
                _serve(make, frames_from(asking[0]), answering[1])
            os._exit(0)
    os.close(asking[0])
    os.close(answering[1])
    return ChildWorker(child, asking[1], answering[0])


def spawn_worker(module: str, job: Job, shared: SharedCounters, number: int) -> ChildWorker:
    """Start a worker in a new interpreter, for callers that must not be forked. Its first frame is its job."""
    asking, answering = guarded_pipe(), _wide_pipe()
    # No descriptor of the host program may become inheritable, because another of its threads may start a program. So
    # each is duplicated to a number above those that the child uses.
    copies = [
        fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, ABOVE)
        for one in (asking[0], answering[1], *shared.descriptors)
    ]
    numbers = range(FIRST, FIRST + len(copies))
    actions = [
        (os.POSIX_SPAWN_DUP2, descriptor, number) for descriptor, number in zip(copies, numbers, strict=True)
    ]
    # -P: the current directory of the host program may contain a `struct.py`.
    words = [sys.executable, "-P", "-m", module, *map(str, numbers), str(shared.workers), str(number)]
    try:
        child = os.posix_spawn(
            sys.executable, words, _importable_here(), file_actions=actions, setsigmask=STOPPING
        )
    finally:
        for descriptor in copies:
            os.close(descriptor)
    os.close(asking[0])
    os.close(answering[1])
    line = ChildWorker(child, asking[1], answering[0])
    try:
        send(asking[1], tuple(job.items()))
    except BrokenPipeError as error:
        line.close()
        raise _died() from error
    return line


def _importable_here() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def serve_spawned(arguments: list[str], make: Callable[[Job, SharedCounters, int], Worker]) -> None:
    """Serve the process that started this one by `spawn_worker`: `arguments` are descriptors, the job is a frame."""
    asking, answering, counters, reading, writing, workers, number = map(int, arguments)
    shared = SharedCounters(workers, (counters, reading, writing))
    frames = frames_from(asking)
    job = next(frames, None)
    # Without a job, the parent was stopped before it sent one.
    if job is not None:
        _serve(
            lambda: make(dict(cast("tuple[tuple[str, object], ...]", job)), shared, number), frames, answering
        )


def _serve(make: Callable[[], Worker], calls: Iterator[Frame], answering: int) -> None:
    """Answer calls until the parent closes the pipe. The parent decides what a signal means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A signal that the caller ignores (nohup) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    # A worker that cannot start reports the reason as the answer to its first question.
    worker, failure = _made(make)
    outbox = Outbox(answering)
    for method, arguments in calls:
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
    """Send frames in batches."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()

    def put(self, frame: Frame) -> None:
        self._buffer += _packed(frame)
        if len(self._buffer) >= BATCH:
            self.flush()

    def flush(self) -> None:
        _write(self._descriptor, self._buffer)
        self._buffer = bytearray()


class Inbox:
    """Receive frames in batches."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()

    def receive(self) -> list[Frame]:
        """Return all frames that have arrived, at least one; EOFError after the last."""
        while not (frames := self._whole()):
            block = os.read(self._descriptor, WIDE)
            if not block:
                raise EOFError
            self._buffer += block
        return frames

    def _whole(self) -> list[Frame]:
        frames: list[Frame] = []
        at, last = 0, len(self._buffer) - LENGTH.size
        with memoryview(self._buffer) as view:
            while at <= last:
                (length,) = LENGTH.unpack_from(view, at)
                end = at + LENGTH.size + length
                if end > len(view):
                    break
                frames.append(marshal.loads(view[at + LENGTH.size : end]))
                at = end
        del self._buffer[:at]
        return frames


def frames_from(descriptor: int) -> Iterator[Frame]:
    """Yield each frame as it arrives, until the other end is closed."""
    inbox = Inbox(descriptor)
    with suppress(EOFError):
        while True:
            yield from inbox.receive()


def send(descriptor: int, frame: Frame) -> None:
    """Write a single frame at once."""
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
    ends = guarded_pipe()
    with suppress(AttributeError, OSError):  # not on every system, and not above the user's limit
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, WIDE)
    return ends


# Workers of a restore: forked copies of this process, so that the work need not be sent, only its results.

T = TypeVar("T")
R = TypeVar("R")
PLACE = struct.Struct("=QQ")
WORKER_KILLED_MESSAGE = "a worker of the restore was killed"
MAX_AT_ONCE, WORTH_A_PROCESS = 256, 128
"""Below this number, doing the work takes less time than starting a process."""
SHARES = 6
"""Portions per process: a process that is done takes another one."""


def portion_size(things: int) -> int:
    """Return the number of items in one piece of work."""
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
    """Do every piece of work; return the results in order, and the value of `end` of each process.

    `begin` creates the tool that a process works with, `end` closes it. `how` is `fork`, or anything else for this
    process. This process calls `meanwhile` as well; if that raises, the error is raised here.
    """

    def begin_list() -> tuple[Any, list[tuple[int, R]]]:
        return begin(), []

    def do_one(pair: tuple[Any, list[tuple[int, R]]], number: int) -> None:
        tool, done = pair
        done.append((number, do(tool, work[number])))

    def end_list(pair: tuple[Any, list[tuple[int, R]]]) -> tuple[list[tuple[int, R]], Any]:
        return pair[1], end(pair[0])

    # Each copy has the work; only the number of a piece is sent.
    count = _copies(how, len(work))
    returned = _stream_among(count, range(len(work)), begin_list, do_one, end_list, meanwhile)
    results = {number: result for done, _ in returned for number, result in done}
    return [results[number] for number in range(len(work))], [ended for _, ended in returned]


def share_stream(
    stream: Iterable[T],
    begin: Callable[[], Any],
    do: Callable[[Any, T], Any],
    end: Callable[[Any], R],
    *,
    how: str,
) -> list[R]:
    """Do every piece of work of a stream, which this process produces meanwhile; return the values of `end`.

    Pieces are sent to the processes, so they should be small.
    """
    return _stream_among(_copies(how), stream, begin, do, end)


def _copies(how: str, pieces: int | None = None) -> int:
    count = core_count() if worker_mode(how) == "fork" else 1
    return count if pieces is None else min(count, pieces)


def _stream_among(
    count: int,
    stream: Iterable[T],
    begin: Callable[[], Any],
    do: Callable[[Any, T], Any],
    end: Callable[[Any], R],
    meanwhile: Callable[[], None] = lambda: None,
) -> list[R]:
    if count < 2:
        meanwhile()
        return [_do_here(stream, begin, do, end)]
    queue = _WorkQueue()

    def run(parent: int) -> Any:
        # Reading ends when no process can write any more.
        queue.stop_queue()
        try:
            tool, done = begin(), 0
            for piece in queue.receive(parent):
                do(tool, piece)
                done += 1
            return done, end(tool)
        finally:
            # When all processes have failed, this process must not wait for one to take a piece.
            queue.close()

    def lead() -> None:
        queue.send_all(stream)
        meanwhile()

    try:
        returned = _in_copies(count, run, lead)
    finally:
        queue.close()
    if sum(done for done, _ in returned) != queue.sent:
        raise EnvhistError(WORKER_KILLED_MESSAGE)
    return [ended for _, ended in returned]


def _do_here(
    stream: Iterable[T], begin: Callable[[], Any], do: Callable[[Any, T], Any], end: Callable[[Any], R]
) -> R:
    tool = begin()
    try:
        for piece in stream:
            do(tool, piece)
        return end(tool)
    except BaseException:
        with suppress(Exception):
            end(tool)
        raise


class _WorkQueue:
    """A queue of pieces of work that any process can take: a file has their bytes, a pipe their offsets."""

    def __init__(self) -> None:
        self.sent = 0
        self._pieces = anonymous_file()
        self._reading, self._writing = os.pipe()

    def send_all(self, stream: Iterable[Any]) -> None:
        """Send each item of the stream; stop early if no process reads the queue any more."""
        # Forget the number before closing it: a signal between the two would close it twice.
        reading, self._reading = self._reading, -1
        os.close(reading)
        at = 0
        for piece in stream:
            self.sent += 1
            data = pickle.dumps(piece, pickle.HIGHEST_PROTOCOL)
            write_all(self._pieces, data, at)
            try:
                os.write(self._writing, PLACE.pack(at, len(data)))
            except BrokenPipeError:
                break  # no worker is left; their results say why
            at += len(data)
        self.stop_queue()

    def stop_queue(self) -> None:
        writing, self._writing = self._writing, -1
        os.close(writing)

    def receive(self, parent: int) -> Iterator[Any]:
        """Yield pieces until there are no more, or until the parent has been killed."""
        # Reads and writes of so few bytes are atomic.
        while (place := os.read(self._reading, PLACE.size)) and os.getppid() == parent:
            at, length = PLACE.unpack(place)
            yield pickle.loads(read_exactly(self._pieces, length, at))

    def close(self) -> None:
        for descriptor in (self._pieces, self._reading, self._writing):
            if descriptor >= 0:
                os.close(descriptor)


class _CopyWorker:
    """A worker of a restore: run one function in a copy of this process; yield its pickled value or error."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run

    def call(self, method: str, arguments: tuple[object, ...]) -> Iterator[Frame]:
        try:
            value = self._run()
        except BaseException as error:  # the parent raises it, whatever it is
            value = error
        data = _pickled(value)
        for start in range(0, len(data), BATCH):
            yield (data[start : start + BATCH],)

    def close(self) -> None:
        """Do nothing: the function closes what it opens."""


def _in_copies(count: int, run: Callable[[int], Any], lead: Callable[[], None]) -> list[Any]:
    """Run `run` in forked copies of this process and `lead` in this one; return the values of `run`."""
    lines: list[WorkerHandle] = []
    parent = os.getpid()
    try:
        # Without a freeze, a collection would write to every object and so copy memory that is shared.
        gc.freeze()
        for _ in range(count):
            # A signal must not arrive before the child is listed: it would not be killed.
            with signals_blocked():
                lines.append(fork_worker(lambda: _CopyWorker(lambda: run(parent)), lines))
        for line in lines:
            line.ask("run", ())
        lead()
        found = _collect(lines)
        _close_all(lines)
    except WorkerFailed as failure:
        raise EnvhistError(WORKER_KILLED_MESSAGE) from failure
    finally:
        gc.unfreeze()
        # Again, because a signal may have come before the first call took effect.
        _close_all(lines)
    return found


def _close_all(lines: list[WorkerHandle]) -> None:
    with signals_blocked():
        while lines:
            lines.pop().close()


def _pickled(value: Any) -> bytes:
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if isinstance(value, BaseException):
            pickle.loads(data)
    except Exception:  # an error that cannot be pickled is sent as a text
        data = pickle.dumps(EnvhistError(f"a worker of the restore failed: {value!r}"))
    return data


def _collect(lines: list[WorkerHandle]) -> list[Any]:
    parts: list[list[bytes]] = [[] for _ in lines]
    for number, (part,) in frames_of(lines):
        parts[number].append(cast(bytes, part))
    found = [pickle.loads(b"".join(data)) for data in parts]
    for value in found:
        if isinstance(value, BaseException):
            raise value
    return found
