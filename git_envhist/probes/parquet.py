"""Read columns and row counts of Parquet files from the footer (Thrift compact protocol), without data pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from git_envhist.model import Fact
from git_envhist.probes.base import Files, Keyed, Parts, RandomAccessFile
from git_envhist.probes.captured_files import CapturedFile, RecordingSource
from git_envhist.probes.table_facts import MAX_FILES, has_own_data, table_fact

PROBE = "parquet"
MAGIC = b"PAR1"
TAIL = 8
MAX_FOOTER = 8 << 20
MAX_COLUMNS = 2_000
MAX_FIELDS = 200_000
MAX_DEPTH = 32
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 0, *range(1, 13)
TYPES = ("boolean", "int32", "int64", "int96", "float", "double", "binary", "fixed")
CONVERTED = {
    0: "string",
    4: "enum",
    5: "decimal",
    6: "date",
    7: "time",
    8: "time",
    9: "timestamp",
    10: "timestamp",
}
LOGICAL = {1: "string", 4: "enum", 5: "decimal", 6: "date", 7: "time", 8: "timestamp", 12: "json", 14: "uuid"}
GROUP = "group"


class _Malformed(Exception):
    """The footer is invalid or too large."""


def wants(directory: bytes) -> bool:
    return has_own_data(directory)


def parts_of(files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """Return the footers."""
    kept = {}
    for name in sorted(files)[:MAX_FILES]:
        source = RecordingSource(files[name])
        _footer(source)
        kept[name] = source.parts
    return kept


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the columns and the number of rows of each file."""
    for name in sorted(files)[:MAX_FILES]:
        footer = _footer(CapturedFile(files[name]))
        if not footer:
            continue
        try:
            columns, rows = _Footer(footer).read()
        except (_Malformed, IndexError):
            continue
        yield table_fact(PROBE, directory, name, rows, columns)


def _footer(source: RandomAccessFile) -> bytes:
    if source.size < TAIL + len(MAGIC):
        return b""
    tail = source.read(source.size - TAIL, TAIL)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or not 0 < length <= min(MAX_FOOTER, source.size - TAIL):
        return b""
    return source.read(source.size - TAIL - length, length)


class _Footer:
    """Parse the footer; every step advances, and the number of fields is limited."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._fields = 0

    def read(self) -> tuple[list[tuple[str, str]], int]:
        """Return the columns with their types, and the number of rows."""
        columns: list[tuple[str, str]] | None = None
        for number, kind in self._struct():
            if number == 2 and kind == LIST:
                columns = self._schema()
            elif number == 3 and kind == I64:
                rows = self._signed()
                if columns is None or rows < 0:
                    raise _Malformed
                return columns, rows
            else:
                self._skip(kind)
        raise _Malformed

    def _schema(self) -> list[tuple[str, str]]:
        """Return the top-level columns; elements are listed depth first."""
        size, kind = self._list()
        if kind != STRUCT or not 0 < size <= MAX_FIELDS:
            raise _Malformed
        elements = [self._element() for _ in range(size)]
        columns: list[tuple[str, str]] = []
        at = 1
        for _ in range(elements[0][2]):
            if at >= len(elements) or len(columns) > MAX_COLUMNS:
                raise _Malformed
            name, type_, children = elements[at]
            columns.append((name, GROUP if children else type_))
            waiting = 1
            while waiting:
                waiting += elements[at][2] - 1
                at += 1
        return columns

    def _element(self) -> tuple[str, str, int]:
        name, type_, children = "", "", 0
        for number, kind in self._struct():
            if number == 4 and kind == BINARY:
                name = self._binary().decode("utf-8", "replace")
            elif number == 5 and kind == I32:
                children = self._signed()
            elif number == 1 and kind == I32:
                type_ = type_ or TYPES[self._signed() % len(TYPES)]
            elif number == 6 and kind == I32:
                type_ = CONVERTED.get(self._signed(), type_)
            elif number == 10 and kind == STRUCT:
                for logical, inner in self._struct():
                    type_ = LOGICAL.get(logical, type_)
                    self._skip(inner)
            else:
                self._skip(kind)
        if not 0 <= children <= MAX_FIELDS:
            raise _Malformed
        return name, type_, children

    def _struct(self) -> Iterator[tuple[int, int]]:
        number = 0
        while (head := self._byte()) != STOP:
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise _Malformed
            number = number + (head >> 4) if head >> 4 else self._signed()
            yield number, head & 0x0F

    def _skip(self, kind: int, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise _Malformed
        if kind in (TRUE, FALSE):
            return
        if kind == BYTE:
            self._byte()
        elif kind in (I16, I32, I64):
            self._varint()
        elif kind == DOUBLE:
            self._at += 8
        elif kind == BINARY:
            self._binary()
        elif kind in (LIST, SET):
            size, inner = self._list()
            self._items(size, (inner,), depth)
        elif kind == MAP:
            size = self._varint()
            both = self._byte() if size else 0
            self._items(size, (both >> 4, both & 0x0F), depth)
        elif kind == STRUCT:
            for _, inner in self._struct():
                self._skip(inner, depth + 1)
        else:
            raise _Malformed

    def _items(self, size: int, kinds: tuple[int, ...], depth: int) -> None:
        self._fields += size
        if self._fields > MAX_FIELDS:
            raise _Malformed
        for _ in range(size):
            for kind in kinds:
                # In a list, a boolean takes one byte.
                self._skip(BYTE if kind in (TRUE, FALSE) else kind, depth + 1)

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        size = head >> 4
        return (self._varint() if size == 15 else size), head & 0x0F

    def _binary(self) -> bytes:
        size = self._varint()
        if size > len(self._data) - self._at:
            raise _Malformed
        self._at += size
        return self._data[self._at - size : self._at]

    def _signed(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise _Malformed

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte
