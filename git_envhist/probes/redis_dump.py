"""Count the keys of a Redis or Valkey dump (RDB) by database and by the part of their names before `:`.

Values are skipped, not decoded. At an unknown type of value the walk ends and the key counts in the dump's
headers are returned instead.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import IO

MAX_PREFIXES = 200
MAX_NAME = 60
KEYS_PER_TIME_CHECK = 20_000
MAX_STRING = 1 << 29
MASK = (1 << 128) - 1
RESIZE, SELECT, END = 0xFB, 0xFE, 0xFF
OPCODE_LAYOUTS = {
    0xFA: (2, 0, 0),
    0xF5: (1, 0, 0),
    0xF4: (0, 3, 0),
    0xFC: (0, 0, 8),
    0xFD: (0, 0, 4),
    0xF8: (0, 1, 0),
    0xF9: (0, 0, 1),
}
"""Opcodes (auxiliary fields, functions, slots, expiry, idle time, frequency) -> following strings, lengths,
bytes."""
ONE_STRING = frozenset((0, 9, 10, 11, 12, 13, 16, 17, 20))
"""Types stored as one string: plain, zipmap, ziplist, intset, listpack."""
STRINGS_PER_ITEM = {1: 1, 2: 1, 4: 2, 14: 1}
"""Types stored as a number of items -> strings per item."""
SCORED_TEXT, SCORED, QUICKLIST = 3, 5, 18
INTEGERS = {0: 1, 1: 2, 2: 4}
COMPRESSED = 3


class InvalidDump(Exception):
    """The bytes are not a complete Redis dump."""


class _Unknown(Exception):
    """A value has an unknown type."""


def count_keys(file: IO[bytes], deadline: float) -> tuple[dict[str, int], int]:
    """Return the numbers of keys (`db0 session:*`), and a digest independent of their order."""
    reader = _RdbReader(file, deadline)
    try:
        reader.walk()
    except _Unknown:
        return {f"db{number}": keys for number, keys in reader.header_counts.items()}, reader.digest
    return reader.counts, reader.digest


class _RdbReader:
    def __init__(self, file: IO[bytes], deadline: float) -> None:
        self._file = file
        self._deadline = deadline
        self._seen = bytearray()
        self._database = 0
        self.counts: dict[str, int] = {}
        self.header_counts: dict[int, int] = {}
        self.digest = 0

    def walk(self) -> None:
        if not self._take(9).startswith((b"REDIS", b"VALKEY")):
            raise InvalidDump
        keys = 0
        while (opcode := self._take(1)[0]) != END:
            if self._skip_opcode(opcode):
                continue
            self._key(opcode)
            keys += 1
            if keys % KEYS_PER_TIME_CHECK == 0 and time.monotonic() > self._deadline:
                raise InvalidDump

    def _skip_opcode(self, opcode: int) -> bool:
        """Read an opcode that is not a key; return False if a key follows."""
        if opcode in OPCODE_LAYOUTS:
            strings, lengths, size = OPCODE_LAYOUTS[opcode]
            for _ in range(strings):
                self._string()
            for _ in range(lengths):
                self._length()
            self._take(size)
        elif opcode == SELECT:
            self._database = self._length()
        elif opcode == RESIZE:
            self.header_counts[self._database] = self._length()
            self._length()
        else:
            return False
        return True

    def _key(self, kind: int) -> None:
        self._seen.clear()
        name = self._string()
        self._skip(kind)
        digest = blake2b(bytes([kind]) + self._seen, digest_size=16).digest()
        self.digest = (self.digest + int.from_bytes(digest, "big")) & MASK
        prefix = f"db{self._database} {_prefix(name)}".rstrip()
        if prefix not in self.counts and len(self.counts) >= MAX_PREFIXES:
            prefix = f"db{self._database} others"
        self.counts[prefix] = self.counts.get(prefix, 0) + 1

    def _skip(self, kind: int) -> None:
        if kind in ONE_STRING:
            self._string()
        elif kind in STRINGS_PER_ITEM:
            for _ in range(self._length() * STRINGS_PER_ITEM[kind]):
                self._string()
        elif kind in (SCORED_TEXT, SCORED):
            for _ in range(self._length()):
                self._string()
                self._take(8 if kind == SCORED else _text_score(self._take(1)[0]))
        elif kind == QUICKLIST:
            for _ in range(self._length()):
                self._length()
                self._string()
        else:
            raise _Unknown

    def _string(self) -> bytes:
        first = self._take(1)[0]
        if first >> 6 != 3:
            return self._take(self._length(first))
        kind = first & 0x3F
        if kind in INTEGERS:
            return str(int.from_bytes(self._take(INTEGERS[kind]), "little", signed=True)).encode("ascii")
        if kind != COMPRESSED:
            raise InvalidDump
        size = self._length()
        self._length()
        self._take(size)
        return b""

    def _length(self, first: int | None = None) -> int:
        first = self._take(1)[0] if first is None else first
        if first >> 6 == 0:
            return first
        if first >> 6 == 1:
            return (first & 0x3F) << 8 | self._take(1)[0]
        size = {0x80: 4, 0x81: 8}.get(first)
        if size is None:
            raise InvalidDump
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> bytes:
        if size > MAX_STRING:
            raise InvalidDump
        data = self._file.read(size)
        if len(data) != size:
            raise InvalidDump
        self._seen += data
        return data


def _text_score(size: int) -> int:
    # The three largest sizes mean infinity, minus infinity and NaN.
    return 0 if size >= 0xFD else size


def _prefix(name: bytes) -> str:
    """Return `session:*` for `session:1f3a`, and an empty string for a name without `:`."""
    head, colon, _ = name.partition(b":")
    if not colon or len(head) > MAX_NAME:
        return ""
    text = head.decode("utf-8", "replace").replace("/", "∕")
    return f"{text}:*" if text.isprintable() else ""
