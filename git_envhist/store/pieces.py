"""Big files as deduplicated pieces.

A file is cut where its content says so, so that bytes put in near its beginning move no later cut; a SQLite file is
cut at every 16 KiB instead, because its pages never move. Each piece is a plain blob, and all of them in order are
the file. The pieces hang in a tree of two levels: a run of them ends at a piece whose id says so, for the same reason
as the cuts, so that a change touches the trees near it and no others.

The parameters belong to the format: other cuts would find nothing of what is stored already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

AVERAGE = 64 << 10
SMALLEST = AVERAGE // 4
LARGEST = AVERAGE * 4
SQLITE_BLOCK = 16 << 10
SQLITE_MAGIC = b"SQLite format 3\0"
LONGEST_RUN = 1024
READ_AHEAD = 8 << 20

TREE_MODE = 0o040000
BLOB_MODE = 0o100644


class ObjectSink(Protocol):
    """Takes objects; what it holds already costs nothing."""

    def add(self, kind: bytes, data: bytes) -> bytes: ...


def store_pieces(sink: ObjectSink, blocks: Iterable[bytes]) -> tuple[int, bytes]:
    """Store a file given block by block; its size and the id of the tree of its pieces."""
    size = 0
    runs: list[bytes] = []
    run: list[bytes] = []
    for piece in cut(blocks):
        size += len(piece)
        oid = sink.add(b"blob", piece)
        run.append(oid)
        if oid[0] == 0 or len(run) == LONGEST_RUN:
            runs.append(_tree(sink, run, b"100644 %04x\0%b"))
            run = []
    if run or not runs:
        runs.append(_tree(sink, run, b"100644 %04x\0%b"))
    return size, _tree(sink, runs, b"40000 %06x\0%b")


def cut(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of a file."""
    source = iter(_gather(blocks))
    first = next(source, b"")
    if first.startswith(SQLITE_MAGIC):
        return _cut_evenly(first, source, SQLITE_BLOCK)
    return _cut_by_content(first, source)


def _tree(sink: ObjectSink, children: list[bytes], entry: bytes) -> bytes:
    return sink.add(b"tree", b"".join(entry % item for item in enumerate(children)))


def _gather(blocks: Iterable[bytes]) -> Iterator[bytes]:
    # The cutter is quickest on large buffers.
    held: list[bytes] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size >= READ_AHEAD:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _cut_evenly(first: bytes, rest: Iterator[bytes], step: int) -> Iterator[bytes]:
    carried = b""
    for buffer in _chain(first, rest):
        data = carried + buffer
        whole = len(data) - len(data) % step
        for start in range(0, whole, step):
            yield data[start : start + step]
        carried = data[whole:]
    if carried:
        yield carried


def _cut_by_content(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    try:
        from pyfastcdc import FastCDC  # loaded late: only a capture that meets a big file needs it
    except ImportError:
        # Without the cutter's wheel everything still works; only insertions dedupe less.
        return _cut_evenly(first, rest, AVERAGE)
    return _cut_with(FastCDC(avg_size=AVERAGE, min_size=SMALLEST, max_size=LARGEST), first, rest)


class Cutter(Protocol):
    def cut_buf(self, buf: bytes) -> Iterable[Chunk]: ...


class Chunk(Protocol):
    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...


def _cut_with(cutter: Cutter, first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    carried = b""
    for buffer in _chain(first, rest):
        data = carried + buffer
        # A cut depends on what follows it for at most the largest piece, so the tail waits for the next buffer.
        keep = 0
        for chunk in cutter.cut_buf(data):
            end = chunk.offset + chunk.length
            if end + LARGEST > len(data):
                break
            yield data[chunk.offset : end]
            keep = end
        carried = data[keep:]
    for chunk in cutter.cut_buf(carried):
        yield carried[chunk.offset : chunk.offset + chunk.length]


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
