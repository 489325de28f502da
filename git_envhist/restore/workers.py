"""Shares work among processes that are copies of this one: what there is to do need not be sent, only what came of it.

Each takes the next piece of work from a pipe that all have open, and writes what came of it into a file of its own,
which is read once it has ended. A pipe, for it gives each byte once: a file in memory that two read at the same moment
gives both the same. Where a process may not be copied, inside a host program, the work is done here.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from git_envhist.errors import EnvhistError
from git_envhist.system import (
    COPIES,
    STOPPING,
    anonymous_file,
    core_count,
    signals_held_back,
    worker_mode,
)

T = TypeVar("T")
R = TypeVar("R")
PLACE = struct.Struct("=QQ")
KILLED = "a worker of the restore was killed"
MOST_AT_ONCE, WORTH_A_PROCESS = 256, 128
"""Fewer things are done before a process is ready to do them."""
SHARES = 6
"""So many portions for each process: whoever is done first takes one more."""


def portion(things: int) -> int:
    """How many things are one piece of work."""
    return max(WORTH_A_PROCESS, min(MOST_AT_ONCE, -(-things // (SHARES * core_count()))))


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
        raise EnvhistError(KILLED)
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
        said = pickle.loads(data) if data else EnvhistError(KILLED)
        if isinstance(said, BaseException):
            raise said
        found.append(said)
    return found
