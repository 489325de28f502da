"""Split big files into deduplicated chunks and store them as blobs below a two-level tree.

A file is cut by its content, so that an insertion near its beginning moves no later cut. A SQLite file is cut every
16 KiB instead, because its pages never move. Each chunk is a plain blob; concatenated in order they are the file. A
run of chunks (one subtree) ends at a chunk whose id starts with a zero byte, so that a change rewrites only the trees
near it.

A hole in a sparse file is cut as the NULs that it reads as, without reading it.

`cut_with_secret` cuts sealed files; `ChunksPointer` is the small blob that replaces the file in the snapshot's tree.
The parameters belong to the format (docs/internals/format.md calls a chunk a piece): with other cuts nothing stored
before would be found again.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from git_envhist.errors import FSCK_HINT, Damaged
from git_envhist.lazy import dataclass
from git_envhist.model import SQLITE_HEADER, ObjectId

if TYPE_CHECKING:
    from git_envhist.snapshots.layout import ObjectSink

AVERAGE = 64 << 10
SMALLEST = AVERAGE // 4
MAX_SIZE = AVERAGE * 4
SQLITE_BLOCK = 16 << 10
MAX_RUN = 1024
READ_AHEAD = 8 << 20
IN_HOLE = 2 * MAX_SIZE
"""A chunk that starts this far into a hole contains only NULs, whatever precedes the hole."""


Block = bytes | int
"""Some bytes, or a number of NULs."""
RepeatedChunk = tuple[bytes, int]
"""A chunk, and how many times it repeats."""


def store_chunks(sink: ObjectSink, blocks: Iterable[Block]) -> tuple[int, bytes]:
    """Store a file given as blocks. Return its size and the id of the tree of its chunks."""
    return store_cut_chunks(sink, cut_into_chunks(blocks))


def store_cut_chunks(sink: ObjectSink, pieces: Iterable[RepeatedChunk]) -> tuple[int, bytes]:
    """Store a file that is already cut into chunks. Return its size and the id of the tree of its chunks."""
    size = 0
    runs = _Runs(sink)
    for piece, times in pieces:
        size += len(piece) * times
        runs.add(sink.add(b"blob", piece), times)
    return size, runs.finish()


class _Runs:
    """Collect the chunks of a file into runs and write their trees."""

    def __init__(self, sink: ObjectSink) -> None:
        self._sink = sink
        self._runs: list[bytes] = []
        self._run: list[bytes] = []

    def add(self, oid: bytes, times: int) -> None:
        """Add a chunk that repeats `times` times."""
        run_length = 1 if oid[0] == 0 else MAX_RUN
        while times:
            if not self._run and times >= 2 * run_length:
                # A hole of terabytes is thousands of equal runs; write each tree once.
                self._runs += [self._tree_of([oid] * run_length)] * (times // run_length)
                times %= run_length
                continue
            taken = 1 if oid[0] == 0 else min(times, MAX_RUN - len(self._run))
            self._run += [oid] * taken
            times -= taken
            if oid[0] == 0 or len(self._run) == MAX_RUN:
                self._end_run()

    def finish(self) -> bytes:
        """Return the id of the tree that contains all runs."""
        if self._run or not self._runs:
            self._end_run()
        return _tree(self._sink, self._runs, b"40000 %06x\0%b")

    def _end_run(self) -> None:
        self._runs.append(self._tree_of(self._run))
        self._run = []

    def _tree_of(self, run: list[bytes]) -> bytes:
        return _tree(self._sink, run, b"100644 %04x\0%b")


def cut_into_chunks(blocks: Iterable[Block]) -> Iterator[RepeatedChunk]:
    """Yield the chunks of a file, each with its repeat count."""
    source = iter(_gather(blocks))
    first = next(source, b"")
    if isinstance(first, bytes) and first.startswith(SQLITE_HEADER):
        return _cut_evenly(_chain(first, source), SQLITE_BLOCK)
    return _cut_by_content(_chain(first, source))


def _tree(sink: ObjectSink, children: list[bytes], entry: bytes) -> bytes:
    return sink.add(b"tree", b"".join(entry % item for item in enumerate(children)))


def _gather(blocks: Iterable[Block]) -> Iterator[Block]:
    # The cutter is fastest on large buffers.
    buffered: list[bytes] = []
    size = 0
    for block in blocks:
        if isinstance(block, int):
            if buffered:
                yield b"".join(buffered)
                buffered, size = [], 0
            yield block
            continue
        buffered.append(block)
        size += len(block)
        if size >= READ_AHEAD:
            yield b"".join(buffered)
            buffered, size = [], 0
    if buffered:
        yield b"".join(buffered)


def _cut_evenly(buffers: Iterator[Block], step: int) -> Iterator[RepeatedChunk]:
    carried = b""
    for buffer in buffers:
        if isinstance(buffer, int):
            carried, pieces = _evenly_through_hole(carried, buffer, step)
            yield from pieces
            continue
        data = carried + buffer
        end = len(data) - len(data) % step
        for start in range(0, end, step):
            yield data[start : start + step], 1
        carried = data[end:]
    if carried:
        yield carried, 1


def _evenly_through_hole(carried: bytes, hole: int, step: int) -> tuple[bytes, list[RepeatedChunk]]:
    missing = -len(carried) % step
    if hole < missing:
        return carried + bytes(hole), []
    whole, rest = divmod(hole - missing, step)
    pieces = [(carried + bytes(missing), 1)] if carried else []
    if whole:
        pieces.append((bytes(step), whole))
    return bytes(rest), pieces


def _cut_by_content(buffers: Iterator[Block]) -> Iterator[RepeatedChunk]:
    try:
        from pyfastcdc import FastCDC  # loaded late: only a capture that meets a big file needs it
    except ImportError:
        # Without pyfastcdc, cut at fixed lengths: only the deduplication after insertions is lost.
        return _cut_evenly(buffers, AVERAGE)
    return _cut_with(FastCDC(avg_size=AVERAGE, min_size=SMALLEST, max_size=MAX_SIZE), buffers)


class Cutter(Protocol):
    def cut_buf(self, buf: bytes) -> Iterable[CutRange]: ...


class CutRange(Protocol):
    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...


def cut_with_cutter(cutter: Cutter, blocks: Iterable[Block]) -> Iterator[RepeatedChunk]:
    """Yield the chunks that a content-defined cutter makes of a file."""
    return _cut_with(cutter, iter(_gather(blocks)))


def _cut_with(cutter: Cutter, buffers: Iterator[Block]) -> Iterator[RepeatedChunk]:
    carried = b""
    for buffer in buffers:
        hole = buffer if isinstance(buffer, int) else 0
        # Pass at most IN_HOLE bytes of a hole to the cutter; the rest repeats one chunk.
        data = carried + (bytes(min(hole, IN_HOLE)) if isinstance(buffer, int) else buffer)
        # A cut depends on at most MAX_SIZE bytes after it, so the tail waits for the next buffer.
        keep = 0
        for chunk in cutter.cut_buf(data):
            end = chunk.offset + chunk.length
            if end + MAX_SIZE > len(data):
                break
            yield data[chunk.offset : end], 1
            keep = end
        carried = data[keep:]
        if hole > IN_HOLE:
            carried, nuls = _through_hole(cutter, len(carried) + hole - IN_HOLE)
            if nuls[1]:
                yield nuls
    for chunk in cutter.cut_buf(carried):
        yield carried[chunk.offset : chunk.offset + chunk.length], 1


def _through_hole(cutter: Cutter, size: int) -> tuple[bytes, RepeatedChunk]:
    """Cut `size` NULs inside a hole. Return the NULs that remain, and the chunk with its repeat count.

    A cut depends on nothing before the chunk, so all chunks of a hole are equal. `size` must exceed MAX_SIZE.
    """
    piece = bytes(next(iter(cutter.cut_buf(bytes(IN_HOLE)))).length)
    times = (size - MAX_SIZE) // len(piece)
    return bytes(size - times * len(piece)), (piece, times)


def _chain(first: Block, rest: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from rest


# The pointer blob that replaces a big file in the tree:
#
#     envhist-pieces 1
#     size 220200960
#     tree 5f2c...
#
# The tree is stored below `.envhist/pieces`; its blobs, in the order of their names, are the file.

MAX_FILE_SIZE = 2**63 - 1

_POINTER = re.compile(rb"envhist-pieces 1\nsize (0|[1-9][0-9]{0,18})\ntree ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n")


@dataclass(frozen=True, slots=True)
class ChunksPointer:
    """The size of a file stored in chunks, and the tree of its chunks."""

    size: int
    tree: ObjectId


def write_pointer(size: int, tree: bytes) -> bytes:
    """Return the blob that replaces the file in the tree."""
    return b"envhist-pieces 1\nsize %d\ntree %b\n" % (size, tree.hex().encode("ascii"))


def read_pointer(data: bytes) -> ChunksPointer:
    """Parse a pointer. Raise `Damaged` if it is malformed."""
    found = _POINTER.fullmatch(data)
    if found is None or int(found[1]) > MAX_FILE_SIZE:
        raise Damaged("the pointer to the pieces of a file cannot be read")
    return ChunksPointer(int(found[1]), ObjectId(bytes.fromhex(found[2].decode("ascii"))))


def chunks_path(tree: bytes) -> tuple[str, str]:
    """Return the two directory names of a file's tree, below the directory of chunks."""
    text = tree.hex()
    return text[:2], text[2:]


# Read a big file back.


class ChunkSource(Protocol):
    """The part of an object reader that reads chunks."""

    def blob(self, oid: bytes) -> bytes: ...
    def list_children(self, tree: bytes) -> list[bytes]: ...


def stream_chunks(reader: ChunkSource, pointer: bytes) -> Iterator[bytes]:
    """Yield the bytes of a big file chunk by chunk, given its pointer; raise `Damaged` if its size is another."""
    stored = read_pointer(pointer)
    size = 0
    for run in reader.list_children(stored.tree):
        for chunk in reader.list_children(run):
            data = reader.blob(chunk)
            size += len(data)
            if size > stored.size:
                break
            yield data
    if size != stored.size:
        raise Damaged("the pieces of a file are not as long as it is said to be", hint=FSCK_HINT)


def count_chunks(reader: ChunkSource, pointer: bytes) -> Counter[bytes]:
    """Return how often each chunk of a big file occurs: a hole of terabytes has few different chunks."""
    found: Counter[bytes] = Counter()
    for run, times in Counter(reader.list_children(read_pointer(pointer).tree)).items():
        for chunk, often in Counter(reader.list_children(run)).items():
            found[chunk] += often * times
    return found


# Cutting for sealed files. Cuts that depend on the content alone would let anyone with a guess of the content compare
# its chunk lengths with those stored. So the cutter sees the bytes through a secret substitution, with a secret seed:
# equal content still has equal chunks under one key. Each chunk is also padded, so that its length reveals the size
# of the deflated chunk to within 6 % only.


def cut_with_secret(
    blocks: Iterable[bytes], secret: bytes, average: int = AVERAGE
) -> Iterator[RepeatedChunk]:
    """Yield the chunks of a file cut with a secret, each with its repeat count; `average`: their mean size."""
    try:
        from pyfastcdc import FastCDC  # loaded late: only a capture that meets a state of a service needs it
    except ImportError:
        # Without pyfastcdc, cut at keyed pseudo-random lengths: only the deduplication after insertions is lost.
        return ((piece, 1) for piece in _cut_by_lengths(blocks, secret, average))
    # The cutter accepts a seed of 63 bits.
    seed = int.from_bytes(hmac.digest(secret, b"seed", "sha256")[:8], "big") >> 1 | 1
    cutter = FastCDC(avg_size=average, min_size=average // 4, max_size=average * 4, seed=seed)
    return cut_with_cutter(_SubstitutingCutter(cutter, substitution(secret)), iter(blocks))


def pad(data: bytes) -> bytes:
    """Append zeros to a deflated chunk so that its length reveals only about five bits of its size."""
    size = max(256, len(data))
    exponent = size.bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return data + bytes(-len(data) % max(256, step) if len(data) >= 256 else 256 - len(data))


def substitution(secret: bytes) -> bytes:
    """Return a secret permutation of the 256 bytes."""
    return bytes(
        sorted(range(256), key=lambda byte: hmac.digest(secret, b"byte " + bytes((byte,)), "sha256"))
    )


class _SubstitutingCutter:
    """A cutter that sees the bytes only through a substitution."""

    def __init__(self, cutter: object, table: bytes) -> None:
        self._cutter = cutter
        self._table = table

    def cut_buf(self, buf: bytes) -> Iterable[CutRange]:
        found: Iterable[CutRange] = self._cutter.cut_buf(buf.translate(self._table))  # type: ignore[attr-defined]
        return found


def _cut_by_lengths(blocks: Iterable[bytes], secret: bytes, average: int) -> Iterator[bytes]:
    buffered, number = bytearray(), 0
    length = _length(secret, number, average)
    for block in blocks:
        buffered += block
        while len(buffered) >= length:
            yield bytes(buffered[:length])
            del buffered[:length]
            number += 1
            length = _length(secret, number, average)
    if buffered:
        yield bytes(buffered)


def _length(secret: bytes, number: int, average: int) -> int:
    number = int.from_bytes(hmac.digest(secret, b"length %d" % number, "sha256")[:4], "big")
    return average // 4 + number % (2 * average - average // 4)
