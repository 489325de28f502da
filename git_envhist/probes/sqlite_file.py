"""Parse SQLite files: schema rows and row counts. No SQL is executed and nothing is written.

The format is documented at https://www.sqlite.org/fileformat2.html. It is parsed here because captured
databases are blobs, not files that a library could open, and because they may be hostile. Every walk is
limited by pages, so a file that refers to itself ends in `MalformedDatabase`.

    page = 1 KiB .. 64 KiB; page 1 starts with a header of 100 bytes and is the root of the schema table
    a table is a tree of pages: inner pages have page numbers, leaves have rows (in an index both have rows)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from git_envhist.model import SQLITE_HEADER

HEADER_SIZE = 100
INNER_INDEX, INNER_TABLE, LEAF_INDEX, LEAF_TABLE = 2, 5, 10, 13
INNER = (INNER_INDEX, INNER_TABLE)
MAX_DEPTH = 24
MAX_PAGES = 200_000
"""Limit of pages read of one database."""
BLOCK = 1 << 14
"""Size of the chunks in which databases are stored; reading one page costs reading its chunk."""
MAX_RECORD = 1 << 20
ENCODINGS = {1: "utf-8", 2: "utf-16-le", 3: "utf-16-be"}
INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}

Value = int | float | str | bytes | None


class MalformedDatabase(Exception):
    """The file does not have the format of a SQLite database."""


class Bytes(Protocol):
    """A source of bytes; a read beyond its end raises `MalformedDatabase`."""

    def read(self, offset: int, length: int) -> bytes: ...


class Overlay(Protocol):
    """Pages that replace those of the file, from a log or a journal."""

    page_size: int

    def page(self, number: int) -> bytes | None: ...


class TableRow(NamedTuple):
    """A row of a table as stored."""

    rowid: int
    values: list[Value]


class PageTree(NamedTuple):
    """A tree of pages: its leaves, and the number of rows in inner pages (indexes only)."""

    leaves: list[int]
    above: int


class SqliteFile:
    """A database: its file and the pages that replace some of it."""

    def __init__(self, source: Bytes, overlay: Overlay | None = None) -> None:
        self._source = source
        self._overlay = overlay
        self._left = MAX_PAGES
        self._blocks: set[int] = set()
        head = (overlay.page(1) if overlay else None) or source.read(0, HEADER_SIZE)
        if not head.startswith(SQLITE_HEADER) or len(head) < HEADER_SIZE:
            raise MalformedDatabase("no database")
        size = int.from_bytes(head[16:18], "big")
        self.page_size = 65536 if size == 1 else size
        self._usable = self.page_size - head[20]
        if size & (size - 1) or (size != 1 and size < 512) or self._usable < 480:
            raise MalformedDatabase("no size of a page")
        if overlay is not None and overlay.page_size != self.page_size:
            raise MalformedDatabase("its log has other pages")
        self.encoding = ENCODINGS.get(int.from_bytes(head[56:60], "big"), "utf-8")

    @property
    def blocks(self) -> int:
        """Return the number of chunks that were read."""
        return len(self._blocks)

    def blocks_of(self, leaves: list[int]) -> int:
        """Return the number of chunks that contain these pages."""
        per_block = max(1, BLOCK // self.page_size)
        return len({(leaf - 1) // per_block for leaf in leaves}) * max(1, self.page_size // BLOCK)

    def extent(self, root: int, max_pages: int = MAX_PAGES) -> PageTree | None:
        """Return the leaves of a tree; None if it has more than `most` inner pages on a level."""
        level, above, seen = [root], 0, {root}
        for _ in range(MAX_DEPTH):
            if self._kind(level[0]) not in INNER:
                return PageTree(level, above)
            if len(level) > max_pages:
                return None
            below: list[int] = []
            for number in sorted(level):
                children, is_index = self._children(number)
                if not seen.isdisjoint(children) or len(set(children)) != len(children):
                    raise MalformedDatabase("it goes round in a circle")
                seen.update(children)
                below += children
                above += len(children) - 1 if is_index else 0
            level = below
        raise MalformedDatabase("its tree is too deep")

    def count(self, extent: PageTree) -> int:
        """Return the number of rows of a tree; this reads the leaves."""
        # In file order, so that no chunk is read twice.
        return extent.above + sum(map(self._cells_of_leaf, sorted(extent.leaves)))

    def rows(self, root: int, max_pages: int) -> Iterator[TableRow]:
        """Yield the first rows of a table in the order of its leaves."""
        extent = self.extent(root)
        for number in extent.leaves if extent is not None else []:
            for row in self._rows_of(number):
                if max_pages <= 0:
                    return
                max_pages -= 1
                yield row

    def _rows_of(self, number: int) -> Iterator[TableRow]:
        page, start = self._page(number), _start(number)
        if page[start] != LEAF_TABLE:
            raise MalformedDatabase("not a leaf of a table")
        for offset in _pointers(page, start + 8, _number(page, start + 3)):
            size, at = read_varint(page, offset)
            rowid, at = read_varint(page, at)
            if size <= MAX_RECORD:
                payload = self._payload(page, at, size)
                yield TableRow(rowid, list(_values(payload, self.encoding)))

    def _payload(self, page: bytes, at: int, size: int) -> bytes:
        usable = self._usable
        if size <= usable - 35:
            return page[at : at + size]
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        local = local if local <= usable - 35 else least
        parts = [page[at : at + local]]
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        left = size - local
        while left > 0:
            page = self._page(following)
            parts.append(page[4 : 4 + min(left, usable - 4)])
            following = int.from_bytes(page[:4], "big")
            left -= usable - 4
        return b"".join(parts)

    def _children(self, number: int) -> tuple[list[int], bool]:
        page, start = self._page(number), _start(number)
        if page[start] not in INNER:
            raise MalformedDatabase("not a page above leaves")
        pointers = _pointers(page, start + 12, _number(page, start + 3))
        children = [int.from_bytes(page[offset : offset + 4], "big") for offset in pointers]
        children.append(int.from_bytes(page[start + 8 : start + 12], "big"))
        return children, page[start] == INNER_INDEX

    def _cells_of_leaf(self, number: int) -> int:
        head = self._head(number)
        if head[0] not in (LEAF_INDEX, LEAF_TABLE):
            raise MalformedDatabase("not a leaf")
        return _number(head, 3)

    def _kind(self, number: int) -> int:
        return self._head(number)[0]

    def _head(self, number: int) -> bytes:
        """Return the first bytes of a page without reading all of it."""
        start = _start(number)
        return self._read(number, start, 8)

    def _page(self, number: int) -> bytes:
        return self._read(number, 0, self.page_size)

    def _read(self, number: int, start: int, length: int) -> bytes:
        self._left -= 1
        if number < 1 or self._left < 0:
            raise MalformedDatabase("it has no such page" if number < 1 else "too much to be looked at")
        page = self._overlay.page(number) if self._overlay is not None else None
        if page is not None:
            return page[start : start + length]
        offset = (number - 1) * self.page_size + start
        self._blocks.add(offset // BLOCK)
        data = self._source.read(offset, length)
        if len(data) != length:
            raise MalformedDatabase("it is cut off")
        return data


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 1 to 9 bytes and its end."""
    value = 0
    for place in range(8):
        if at + place >= len(data):
            raise MalformedDatabase("a number is cut off")
        byte = data[at + place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    if at + 8 >= len(data):
        raise MalformedDatabase("a number is cut off")
    value = value << 8 | data[at + 8]
    return value - (value >> 63 << 64), at + 9


def _values(record: bytes, encoding: str) -> Iterator[Value]:
    """Yield the columns of a record: first come their types, then their values."""
    end, at = read_varint(record, 0)
    if end > len(record):
        raise MalformedDatabase("a record is cut off")
    body = end
    while at < end:
        kind, at = read_varint(record, at)
        size = INTEGER_SIZES.get(kind, 8 if kind == 7 else max(0, kind - 12) // 2)
        yield _value(kind, record[body : body + size], encoding)
        body += size


def _value(kind: int, data: bytes, encoding: str) -> Value:
    if kind in INTEGER_SIZES:
        return int.from_bytes(data, "big", signed=True)
    if kind == 7:
        return float(struct.unpack(">d", data)[0]) if len(data) == 8 else None
    if kind in (8, 9):
        return kind - 8
    if kind < 12:
        return None
    if kind % 2 == 0:
        return data
    return data.decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")


def _start(number: int) -> int:
    return HEADER_SIZE if number == 1 else 0


def _number(data: bytes, at: int) -> int:
    return data[at] << 8 | data[at + 1]


def _pointers(page: bytes, at: int, cells: int) -> tuple[int, ...]:
    if at + 2 * cells > len(page):
        raise MalformedDatabase("more cells than a page holds")
    return struct.unpack_from(f">{cells}H", page, at)


# Pages from a log (new versions of pages) or a journal (versions before an unfinished transaction).
# A log (`-wal`) is a sequence of frames, each with a checksum over all before it; frames up to the last
# commit are valid. A journal (`-journal`) has the original pages of a transaction that did not finish.

LOG_MAGIC = (0x377F0682, 0x377F0683)
LOG_HEAD, FRAME_HEAD = 32, 24
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
JOURNAL_HEAD = 28
UNKNOWN_COUNT = 0xFFFFFFFF
MAX_CHECKSUMMED = 8 << 20
"""Longer logs are validated only by their salts, not by checksums."""
MASK = 0xFFFFFFFF


class WalPages:
    """Pages that replace those of the file."""

    def __init__(self, data: bytes, page_size: int, places: dict[int, int]) -> None:
        self.page_size = page_size
        self._data = data
        self._places = places

    def page(self, number: int) -> bytes | None:
        at = self._places.get(number)
        return None if at is None else self._data[at : at + self.page_size]


def read_log(data: bytes) -> WalPages | None:
    """Return the committed pages of a log; None if there are none."""
    if len(data) < LOG_HEAD + FRAME_HEAD:
        return None
    magic, _, page_size = struct.unpack_from(">III", data)
    if magic not in LOG_MAGIC or not _is_page_size(page_size):
        return None
    order = ">" if magic & 1 else "<"
    sums = _checksum(order, data[:24], (0, 0))
    if sums != struct.unpack_from(">II", data, 24):
        return None
    places: dict[int, int] = {}
    pending: dict[int, int] = {}
    for number, is_end, at in _frames(data, page_size, order, sums):
        pending[number] = at
        if is_end:
            places.update(pending)
            pending = {}
    return WalPages(data, page_size, places) if places else None


def _frames(
    data: bytes, page_size: int, order: str, sums: tuple[int, int]
) -> Iterator[tuple[int, bool, int]]:
    """Yield (page, ends a transaction, offset) for each valid frame."""
    salts = data[16:24]
    step = FRAME_HEAD + page_size
    for at in range(LOG_HEAD, len(data) - step + 1, step):
        number, size = struct.unpack_from(">II", data, at)
        if data[at + 8 : at + 16] != salts or not number:
            return
        if len(data) <= MAX_CHECKSUMMED:
            sums = _checksum(order, data[at : at + 8] + data[at + FRAME_HEAD : at + step], sums)
            if sums != struct.unpack_from(">II", data, at + 16):
                return
        yield number, size != 0, at + FRAME_HEAD


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for word in words:
        first = (first + word + second) & MASK
        second = (second + next(words) + first) & MASK
    return first, second


def read_journal(data: bytes) -> WalPages | None:
    """Return the pages that undo an unfinished transaction; None if there is none."""
    if data[:8] != JOURNAL_MAGIC or len(data) < JOURNAL_HEAD:
        return None
    if data.endswith(JOURNAL_MAGIC):
        # Only a file shared by all databases of the transaction tells whether it finished.
        raise MalformedDatabase("it is in the middle of a transaction with other databases")
    sector, page_size = struct.unpack_from(">II", data, 20)
    if not _is_page_size(page_size) or not 32 <= sector <= 65536 or sector & (sector - 1):
        return None
    places: dict[int, int] = {}
    at = 0
    while data[at : at + 8] == JOURNAL_MAGIC and at + JOURNAL_HEAD <= len(data):
        count, nonce = struct.unpack_from(">II", data, at + 8)
        at += sector
        for number, place in _journal_pages(data, at, count, nonce, page_size):
            places.setdefault(number, place)
            at = place + page_size + 4
        at = -(-at // sector) * sector
    return WalPages(data, page_size, places) if places else None


def _journal_pages(data: bytes, at: int, count: int, nonce: int, page_size: int) -> Iterator[tuple[int, int]]:
    """Yield (page, offset) for one section of a journal."""
    step = page_size + 8
    max_pages = max(0, len(data) - at) // step
    for place in range(
        at, at + (max_pages if count == UNKNOWN_COUNT else min(count, max_pages)) * step, step
    ):
        number = int.from_bytes(data[place : place + 4], "big")
        page = data[place + 4 : place + 4 + page_size]
        checksum = int.from_bytes(data[place + step - 4 : place + step], "big")
        if not number or (nonce + sum(page[page_size - 200 : 0 : -200])) & MASK != checksum:
            return
        yield number, place + 4


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65536 and size & (size - 1) == 0
