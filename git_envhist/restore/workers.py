"""Shares work among processes that are copies of this one: what there is to do need not be sent, only what came of it.

Each takes the next piece of work from a file that all have open, and writes what came of it into a file of its own,
which is read once it has ended. Where a process may not be copied, inside a host program, the work is done here.
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
from git_envhist.system import STOPPING, core_count, how_workers_run, nameless_file, signals_held_back

T = TypeVar("T")
R = TypeVar("R")
TICKET = 4
PLACE = struct.Struct("=QQ")
KILLED = "a worker of the restore was killed"
WORTH_A_PROCESS = 64
"""Fewer pieces of work are done before a process is ready to do them."""


def share_out(
    work: Sequence[T],
    begin: Callable[[], Any],
    do: Callable[[Any, T], R],
    end: Callable[[Any], Any],
    *,
    how: str,
) -> tuple[list[R], list[Any]]:
    """Do every piece of work; the results in their order, and what `end` gave for each process.

    `begin` makes what a process works with, `end` lets go of it. `how` is `fork`, or anything else for here.
    """
    count = min(core_count(), len(work)) if how_workers_run(how) == "fork" else 1
    if count < 2:
        tool = begin()
        try:
            return [do(tool, piece) for piece in work], [end(tool)]
        except BaseException:
            with suppress(Exception):
                end(tool)
            raise
    return _share_among(count, work, begin, do, end)


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
    count = core_count() if how_workers_run(how) == "fork" else 1
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
) -> tuple[list[R], list[Any]]:
    tickets = nameless_file()

    def be(parent: int) -> Any:
        tool = begin()
        done = [(number, do(tool, work[number])) for number in _take(parent, tickets)]
        return done, end(tool)

    try:
        os.write(tickets, b"".join(number.to_bytes(TICKET, "big") for number in range(len(work))))
        os.lseek(tickets, 0, os.SEEK_SET)
        said = _among(count, be, lambda: None)
    finally:
        os.close(tickets)
    results = {number: result for done, _ in said for number, result in done}
    if len(results) != len(work):
        raise EnvhistError(KILLED)
    return [results[number] for number in range(len(work))], [ended for _, ended in said]


def _stream_among(
    count: int,
    stream: Iterable[T],
    begin: Callable[[], Any],
    do: Callable[[Any, T], Any],
    end: Callable[[Any], R],
) -> list[R]:
    pieces = nameless_file()
    taking, giving = os.pipe()

    def be(parent: int) -> Any:
        # The end of the work is when nobody has this any more.
        os.close(giving)
        tool, done = begin(), 0
        for piece in _receive(parent, taking, pieces):
            do(tool, piece)
            done += 1
        return done, end(tool)

    def give() -> int:
        number = at = 0
        for piece in stream:
            number += 1
            data = pickle.dumps(piece, pickle.HIGHEST_PROTOCOL)
            os.pwrite(pieces, data, at)
            try:
                os.write(giving, PLACE.pack(at, len(data)))
            except BrokenPipeError:
                break  # nobody is left, and why is told by what they say
            at += len(data)
        return number

    sent = 0

    def lead() -> None:
        nonlocal sent, giving, taking
        os.close(taking)
        taking = -1
        sent = give()
        os.close(giving)
        giving = -1

    try:
        said = _among(count, be, lead)
    finally:
        for descriptor in (pieces, taking, giving):
            if descriptor >= 0:
                os.close(descriptor)
    if sum(done for done, _ in said) != sent:
        raise EnvhistError(KILLED)
    return [ended for _, ended in said]


def _receive(parent: int, taking: int, pieces: int) -> Iterator[Any]:
    # Written whole and read whole, as so little is: nobody gets a part of another's. What was sent before the parent
    # was killed waits for nobody.
    while (place := os.read(taking, PLACE.size)) and os.getppid() == parent:
        at, length = PLACE.unpack(place)
        yield pickle.loads(os.pread(pieces, length, at))


def _among(count: int, be: Callable[[int], Any], lead: Callable[[], None]) -> list[Any]:
    """What `be` gave in each of so many copies of this process, while this one leads."""
    outputs = [nameless_file() for _ in range(count)]
    children: list[int] = []
    parent = os.getpid()
    try:
        # What is only read is not to be copied because a collection writes into its heads.
        gc.freeze()
        for output in outputs:
            with signals_held_back():
                child = os.fork()
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


def _take(parent: int, tickets: int) -> Iterator[int]:
    while os.getppid() == parent and (ticket := os.read(tickets, TICKET)):
        yield int.from_bytes(ticket, "big")


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
