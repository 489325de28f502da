"""How a file that names one place is made to name another (pure).

A place is named where nothing that could be part of a longer name stands on either side of it: `/srv/app` is not named
by `/srv/app-2`, nor by `/old/srv/app`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

SPELLED = re.compile(r"[A-Za-z0-9_./+=@:,-]+")
NAME = rb"[\w.+@~%\x80-\xff-]"
LONGEST_FIRST_LINE = 127
"""What every Linux reads of the line that names an interpreter; newer ones read 255."""
PYTHON = re.compile(rb"#!(\S*/(?:python|pypy)[\w.]*)(?:[ \t]+(\S.*?))?[ \t]*\r?$")
TOO_LONG = "its first line would be too long for the system"


class Relocation(NamedTuple):
    """From some places to one."""

    pattern: re.Pattern[bytes]
    to: bytes

    @classmethod
    def between(cls, origins: Sequence[str], to: str) -> Relocation:
        """The longest of the places is looked for first: one may stand inside another."""
        spellings = {spelling for place in origins for spelling in _spellings(place)}
        words = b"|".join(re.escape(one) for one in sorted(spellings, key=len, reverse=True))
        pattern = re.compile(rb"(?<!" + NAME + rb")(?:" + words + rb")(?!" + NAME + rb")")
        return cls(pattern, b"" + to.encode("utf-8", "surrogateescape"))

    def is_named_in(self, data: bytes) -> bool:
        return self.pattern.search(data) is not None

    def rewritten(self, data: bytes) -> bytes:
        return self.pattern.sub(lambda _: self.to, data)


def is_shell_safe(place: str) -> bool:
    """Whether a place can stand in scripts and first lines as it is, without quotes."""
    return SPELLED.fullmatch(place) is not None


def is_text(data: bytes) -> bool:
    return b"\0" not in data


def rewrite(data: bytes, moved: Relocation) -> bytes | None:
    """A file that names the other place; None where its first line would be too long. Of a binary file the first line
    alone is rewritten."""
    line, newline, rest = data.partition(b"\n")
    if is_text(data):
        rest = moved.rewritten(rest)
    if not data.startswith(b"#!"):
        return moved.rewritten(line) + newline + rest if is_text(data) else data
    first = moved.rewritten(line)
    if first != line and len(first) > LONGEST_FIRST_LINE:
        by_shell = _by_shell(first)
        if by_shell is None:
            return None
        first = by_shell
    return first + newline + rest


def _by_shell(line: bytes) -> bytes | None:
    """Two lines that are shell to a shell, which runs Python, and a string to Python."""
    told = PYTHON.fullmatch(line)
    if told is None:
        return None
    words = b" ".join((told[1], *([told[2]] if told[2] else [])))
    return b"#!/bin/sh\n'''exec' " + words + b' "$0" "$@"\n' + b"' '''"


def _spellings(place: str) -> set[bytes]:
    """As it stands in paths, and in the addresses of files."""
    return {place.encode("utf-8", "surrogateescape"), quote(place, errors="surrogateescape").encode("ascii")}
