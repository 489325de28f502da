"""Read dumps of Redis and Valkey: version and number of keys of the first database; and the parts of a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed, Parts, RandomAccessFile

PROBE = "redis"
DUMP, MANIFEST = b".rdb", b".aof.manifest"
MAGIC = re.compile(rb"(?:REDIS[0-9]{4}|VALKEY[0-9]{3})")
HEAD_SIZE = 1 << 12
"""The metadata of a dump comes before all values."""
WORD, DATABASE, SIZES = 0xFA, 0xFE, 0xFB
MAX_WORDS = 32
VERSION = re.compile(rb"[0-9A-Za-z.+~-]{1,40}\Z")
VERSIONS = (b"redis-ver", b"valkey-ver")
INTEGERS = {0xC0: 1, 0xC1: 2, 0xC2: 4}
FILE = re.compile(rb"file \S+ seq ([0-9]{1,18}) type ([bih])(?: .*)?\Z")


class _Truncated(Exception):
    """The needed bytes are missing or are not a number."""


def wants(directory: bytes) -> bool:
    return True


def parts_of(files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """Return the beginnings of dumps."""
    return {name: ((0, file.read(0, HEAD_SIZE)),) for name, file in files.items() if name.endswith(DUMP)}


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the facts of dumps and log manifests."""
    for name, file in files.items():
        data = file.data if file.data is not None else dict(file.parts).get(0, b"")
        if file.sealed:
            continue
        facts = _dump(data[:HEAD_SIZE]) if name.endswith(DUMP) else {}
        if name.endswith(MANIFEST):
            facts = _log(data)
        place = (directory + b"/" + name if directory else name).decode("utf-8", "surrogateescape")
        for key, value in facts.items():
            yield Fact(PROBE, f"{place}/{key}", value, EnvPath(directory))


def _dump(data: bytes) -> dict[str, str]:
    """Return `version`, and `keys` of the first database that has any."""
    facts: dict[str, str] = {}
    found = MAGIC.match(data)
    if found is None:
        return facts
    at, database = found.end(), 0
    try:
        for _ in range(MAX_WORDS):
            sign, at = data[at], at + 1
            if sign == WORD:
                key, at = _string(data, at)
                value, at = _string(data, at)
                if key in VERSIONS and VERSION.match(value):
                    facts["version"] = value.decode("ascii")
            elif sign == DATABASE:
                database, at = _length(data, at)
            elif sign == SIZES:
                facts["keys" if not database else f"keys of database {database}"] = str(_length(data, at)[0])
                break
            else:
                break
    except (_Truncated, IndexError):
        pass
    return facts


def _length(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    kind = first >> 6
    if kind == 0:
        return first, at + 1
    if kind == 1:
        return (first & 0x3F) << 8 | data[at + 1], at + 2
    size = {0x80: 4, 0x81: 8}.get(first)
    if size is None or at + 1 + size > len(data):
        raise _Truncated
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    size = INTEGERS.get(data[at])
    if size is not None:
        number = int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True)
        return str(number).encode("ascii"), at + 1 + size
    length, at = _length(data, at)
    return data[at : at + length], at + length


def _log(data: bytes) -> dict[str, str]:
    """Return `log`: the number of the base file, and the number of incremental parts."""
    lines = [found for line in data.split(b"\n") if (found := FILE.match(line.rstrip())) is not None]
    bases = [int(found[1]) for found in lines if found[2] == b"b"]
    rest = sum(found[2] == b"i" for found in lines)
    if not lines:
        return {}
    return {"log": f"base {max(bases, default=0)} and {rest} {'part' if rest == 1 else 'parts'}"}
