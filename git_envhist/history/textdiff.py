"""A unified diff of two texts that must not be given to another program, nor to the disk (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

CONTEXT = 3
LOOKED_AT = 8000
# Matching lines costs the square of their number at worst; a sealed file of more lines is told as replaced.
MOST_LINES = 20_000
NO_NEWLINE = b"\n\\ No newline at end of file\n"


def is_binary(data: bytes) -> bool:
    """Whether git would take the bytes for binary."""
    return b"\0" in data[:LOOKED_AT]


def unified_hunks(before: bytes, after: bytes) -> bytes:
    """The hunks of a unified diff, as git writes them."""
    return b"".join(_hunks(_lines(before), _lines(after)))


def _lines(text: bytes) -> list[bytes]:
    # Only a line feed ends a line here: bytes.splitlines() knows others.
    *whole, rest = text.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    if len(old) + len(new) > MOST_LINES:
        yield _head(0, len(old), 0, len(new))
        yield from (_line(b"-", line) for line in old)
        yield from (_line(b"+", line) for line in new)
        return
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        yield _head(first[1], last[2], first[3], last[4])
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                yield from (_line(b" ", line) for line in old[start:end])
                continue
            yield from (_line(b"-", line) for line in old[start:end])
            yield from (_line(b"+", line) for line in new[new_start:new_end])


def _head(start: int, end: int, new_start: int, new_end: int) -> bytes:
    return b"@@ -%b +%b @@\n" % (_range(start, end), _range(new_start, new_end))


def _range(start: int, end: int) -> bytes:
    length = end - start
    if length == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if length else start, length)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + NO_NEWLINE
