"""Big files as deduplicated pieces.

A file is cut where its content says so, so that bytes put in near its beginning move no later cut; a SQLite file is
cut at every 16 KiB instead, because its pages never move. Each piece is a plain blob, and all of them in order are
the file. The pieces hang in a tree of two levels: a run of them ends at a piece whose id says so, for the same reason
as the cuts, so that a change touches the trees near it and no others.

A hole, which no disk holds, is cut as the NULs that it reads as, without a look at them: a sparse file takes the time
of its data.

The parameters belong to the format: other cuts would find nothing of what is stored already.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass
from git_envhist.model import SQLITE_HEADER, ObjectId

AVERAGE = 64 << 10
SMALLEST = AVERAGE // 4
MAX_SIZE = AVERAGE * 4
SQLITE_BLOCK = 16 << 10
MAX_RUN = 1024
READ_AHEAD = 8 << 20
IN_HOLE = 2 * MAX_SIZE
"""So far into a hole a piece begins that holds nothing else, whatever stands before."""


Block = bytes | int
"""Some bytes; or a number, which stands for so many NULs."""
Pieces = tuple[bytes, int]
"""A piece, and how many times it comes in a row."""


class ObjectSink(Protocol):
    """Takes objects; what it holds already costs nothing."""

    def add(self, kind: bytes, data: bytes) -> bytes: ...


def store_pieces(sink: ObjectSink, blocks: Iterable[Block]) -> tuple[int, bytes]:
    """Store a file given block by block; its size and the id of the tree of its pieces."""
    return store_cut(sink, cut(blocks))


def store_cut(sink: ObjectSink, pieces: Iterable[Pieces]) -> tuple[int, bytes]:
    """Store a file that is cut into pieces already."""
    size = 0
    runs = _Runs(sink)
    for piece, times in pieces:
        size += len(piece) * times
        runs.add(sink.add(b"blob", piece), times)
    return size, runs.finish()


class _Runs:
    """The pieces of a file on their way into a tree."""

    def __init__(self, sink: ObjectSink) -> None:
        self._sink = sink
        self._runs: list[bytes] = []
        self._run: list[bytes] = []

    def add(self, oid: bytes, times: int) -> None:
        """A piece, so many times in a row."""
        longest = 1 if oid[0] == 0 else MAX_RUN
        while times:
            if not self._run and times >= 2 * longest:
                # A hole of terabytes is some thousand equal runs: each is made once.
                self._runs += [self._tree_of([oid] * longest)] * (times // longest)
                times %= longest
                continue
            taken = 1 if oid[0] == 0 else min(times, MAX_RUN - len(self._run))
            self._run += [oid] * taken
            times -= taken
            if oid[0] == 0 or len(self._run) == MAX_RUN:
                self._end_run()

    def finish(self) -> bytes:
        """The id of the tree that holds all runs."""
        if self._run or not self._runs:
            self._end_run()
        return _tree(self._sink, self._runs, b"40000 %06x\0%b")

    def _end_run(self) -> None:
        self._runs.append(self._tree_of(self._run))
        self._run = []

    def _tree_of(self, run: list[bytes]) -> bytes:
        return _tree(self._sink, run, b"100644 %04x\0%b")


def cut(blocks: Iterable[Block]) -> Iterator[Pieces]:
    """The pieces of a file: each, and how many times it comes in a row."""
    source = iter(_gather(blocks))
    first = next(source, b"")
    if isinstance(first, bytes) and first.startswith(SQLITE_HEADER):
        return _cut_evenly(_chain(first, source), SQLITE_BLOCK)
    return _cut_by_content(_chain(first, source))


def _tree(sink: ObjectSink, children: list[bytes], entry: bytes) -> bytes:
    return sink.add(b"tree", b"".join(entry % item for item in enumerate(children)))


def _gather(blocks: Iterable[Block]) -> Iterator[Block]:
    # The cutter is quickest on large buffers.
    held: list[bytes] = []
    size = 0
    for block in blocks:
        if isinstance(block, int):
            if held:
                yield b"".join(held)
                held, size = [], 0
            yield block
            continue
        held.append(block)
        size += len(block)
        if size >= READ_AHEAD:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _cut_evenly(buffers: Iterator[Block], step: int) -> Iterator[Pieces]:
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


def _evenly_through_hole(carried: bytes, hole: int, step: int) -> tuple[bytes, list[Pieces]]:
    missing = -len(carried) % step
    if hole < missing:
        return carried + bytes(hole), []
    whole, rest = divmod(hole - missing, step)
    pieces = [(carried + bytes(missing), 1)] if carried else []
    if whole:
        pieces.append((bytes(step), whole))
    return bytes(rest), pieces


def _cut_by_content(buffers: Iterator[Block]) -> Iterator[Pieces]:
    try:
        from pyfastcdc import FastCDC  # loaded late: only a capture that meets a big file needs it
    except ImportError:
        # Without the cutter's wheel everything still works; only insertions dedupe less.
        return _cut_evenly(buffers, AVERAGE)
    return _cut_with(FastCDC(avg_size=AVERAGE, min_size=SMALLEST, max_size=MAX_SIZE), buffers)


class Cutter(Protocol):
    def cut_buf(self, buf: bytes) -> Iterable[CutRange]: ...


class CutRange(Protocol):
    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...


def cut_with_cutter(cutter: Cutter, blocks: Iterable[Block]) -> Iterator[Pieces]:
    """The pieces that a cutter makes of a file."""
    return _cut_with(cutter, iter(_gather(blocks)))


def _cut_with(cutter: Cutter, buffers: Iterator[Block]) -> Iterator[Pieces]:
    carried = b""
    for buffer in buffers:
        hole = buffer if isinstance(buffer, int) else 0
        # Of a hole the cutter sees no more than it needs to be in the midst of it at the end.
        data = carried + (bytes(min(hole, IN_HOLE)) if isinstance(buffer, int) else buffer)
        # A cut depends on what follows it for at most the largest piece, so the tail waits for the next buffer.
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


def _through_hole(cutter: Cutter, size: int) -> tuple[bytes, Pieces]:
    """What is left of so many NULs, more than the largest piece, behind the pieces that they are cut into; and these.

    Where a piece ends depends on nothing before it: those of a hole are all alike.
    """
    piece = bytes(next(iter(cutter.cut_buf(bytes(IN_HOLE)))).length)
    times = (size - MAX_SIZE) // len(piece)
    return bytes(size - times * len(piece)), (piece, times)


def _chain(first: Block, rest: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from rest


# The small blob that stands for a big file whose bytes are kept in pieces (pure).
#
# envhist-pieces 1
# size 220200960
# tree 5f2c…
#
# The tree with that id stands below `.envhist/pieces`; its blobs, in the order of their names, are the file.

MAX_SIZE_SIZE = 2**63 - 1

_POINTER = re.compile(rb"envhist-pieces 1\nsize (0|[1-9][0-9]{0,18})\ntree ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n")


@dataclass(frozen=True, slots=True)
class ChunksPointer:
    """A file in pieces: how long it is, and the tree that holds its pieces."""

    size: int
    tree: ObjectId


def write_pointer(size: int, tree: bytes) -> bytes:
    """The blob that stands in the tree for the file."""
    return b"envhist-pieces 1\nsize %d\ntree %b\n" % (size, tree.hex().encode("ascii"))


def read_pointer(data: bytes) -> ChunksPointer:
    """Read a pointer; `Damaged` where it is none."""
    found = _POINTER.fullmatch(data)
    if found is None or int(found[1]) > MAX_SIZE_SIZE:
        raise Damaged("the pointer to the pieces of a file cannot be read")
    return ChunksPointer(int(found[1]), ObjectId(bytes.fromhex(found[2].decode("ascii"))))


def pieces_path(tree: bytes) -> tuple[str, str]:
    """The two names, below the directory of pieces, under which a file's tree stands."""
    text = tree.hex()
    return text[:2], text[2:]


# Read a big file back.

HINT = "'git envlog fsck' says what else is missing"


class ChunkReader(Protocol):
    """The part of an object reader that reads chunks."""

    def blob(self, oid: bytes) -> bytes: ...
    def list_children(self, tree: bytes) -> list[bytes]: ...


def stream_chunks(reader: ChunkReader, pointer: bytes) -> Iterator[bytes]:
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
        raise Damaged("the pieces of a file are not as long as it is said to be", hint=HINT)


def count_chunks(reader: ChunkReader, pointer: bytes) -> Counter[bytes]:
    """Return how often each chunk of a big file occurs: a hole of terabytes has few different chunks."""
    found: Counter[bytes] = Counter()
    for run, times in Counter(reader.list_children(read_pointer(pointer).tree)).items():
        for chunk, often in Counter(reader.list_children(run)).items():
            found[chunk] += often * times
    return found


# Cut what is sealed in pieces where only the key says so, so that lengths of pieces confirm no guess of the content.
#
# Cuts by content alone are the same for everybody: with a guess of a dump anybody can cut and deflate it, and compare
# the lengths with those of the sealed pieces. So the cutter sees the bytes through a secret substitution, with a secret
# seed: equal content still has equal pieces under one key, and without the key no cut can be told. A piece is padded as
# well, to a length that tells the size of the deflated piece within 6 % at most.


def secret_cuts(blocks: Iterable[bytes], secret: bytes) -> Iterator[Pieces]:
    """The pieces of a file under a secret: each, and how many times it comes in a row."""
    try:
        from pyfastcdc import FastCDC  # loaded late: only a capture that meets a state of a service needs it
    except ImportError:
        # Without the cutter's wheel everything still works; only insertions dedupe less.
        return ((piece, 1) for piece in _cut_by_lengths(blocks, secret))
    # The cutter takes 63 bits.
    seed = int.from_bytes(hmac.digest(secret, b"seed", "sha256")[:8], "big") >> 1 | 1
    cutter = FastCDC(avg_size=AVERAGE, min_size=SMALLEST, max_size=MAX_SIZE, seed=seed)
    return cut_with_cutter(_Veiled(cutter, substitution(secret)), iter(blocks))


def padded(data: bytes) -> bytes:
    """A deflated piece, followed by zeros up to a length that tells little: of its size five bits or so remain."""
    size = max(256, len(data))
    exponent = size.bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return data + bytes(-len(data) % max(256, step) if len(data) >= 256 else 256 - len(data))


def substitution(secret: bytes) -> bytes:
    """A secret permutation of the 256 bytes."""
    return bytes(
        sorted(range(256), key=lambda byte: hmac.digest(secret, b"byte " + bytes((byte,)), "sha256"))
    )


class _Veiled:
    """A cutter that never sees the bytes that it cuts."""

    def __init__(self, cutter: object, table: bytes) -> None:
        self._cutter = cutter
        self._table = table

    def cut_buf(self, buf: bytes) -> Iterable[CutRange]:
        found: Iterable[CutRange] = self._cutter.cut_buf(buf.translate(self._table))  # type: ignore[attr-defined]
        return found


def _cut_by_lengths(blocks: Iterable[bytes], secret: bytes) -> Iterator[bytes]:
    held, number = bytearray(), 0
    length = _length(secret, number)
    for block in blocks:
        held += block
        while len(held) >= length:
            yield bytes(held[:length])
            del held[:length]
            number += 1
            length = _length(secret, number)
    if held:
        yield bytes(held)


def _length(secret: bytes, number: int) -> int:
    told = int.from_bytes(hmac.digest(secret, b"length %d" % number, "sha256")[:4], "big")
    return SMALLEST + told % (2 * AVERAGE - SMALLEST)
