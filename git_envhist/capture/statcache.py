"""What was seen at the last capture, so that unchanged files are not read again; losing it costs time, nothing else.

A head names the shards and says under which rules, on which snapshot and on which files they are true. A shard holds
the records of a range of directories, and is small, so that a change writes little; one that did not change stays.
The head is replaced last, and no name is used twice: a crash between the two leaves the old cache. Each file has a
checksum. Whatever cannot be read, or belongs to other rules, is no cache.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from git_envhist.system import open_file_only
from git_envhist.values import dataclass, field

VERSION = 4
HEAD = "head"
COMPRESSED = b"\x28\xb5\x2f\xfd"
"""How the head of the first two versions of the cache began: zstd."""
Checksum = Callable[[bytes], int]


class CacheShard(NamedTuple):
    """One file of records."""

    first: bytes
    """The first directory in it, or one before that."""
    name: str
    checksum: int


class CachedFacts(NamedTuple):
    """The text of a probe in the snapshot that the cache relies on."""

    version: int
    """That of the probe that wrote it."""
    stamp: str
    """By what its source is known again."""
    oid: str


@dataclass(frozen=True, slots=True)
class CacheHeader:
    """What the records of a cache are true for."""

    naming: str
    """A digest of the rules that say what is part of the environment."""
    keeping: str
    """A digest of the rules that say how content is kept."""
    base: str
    """The commit whose trees hold every id in the records."""
    shards: tuple[CacheShard, ...] = ()
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Directory -> the trees of the pieces of its big files."""
    elsewhere: dict[bytes, bytes] = field(default_factory=dict)
    """Nested repositories and further roots: their trees, and digests of their modes."""
    files: int = 0
    facts: dict[str, CachedFacts] = field(default_factory=dict)
    """By probe, what the snapshot says beside the files."""


class StatCache:
    """The cache of one working tree."""

    def __init__(self, directory: str, checksum: Checksum) -> None:
        self.directory = directory
        self._checksum = checksum

    def read_head(self) -> CacheHeader | None:
        """The head, or None where there is no cache that can be trusted."""
        try:
            with open(os.path.join(self.directory, HEAD), "rb", opener=open_file_only) as file:
                checksum, _, text = file.read().partition(b"\n")
            if int(checksum) != self._checksum(text):
                return None
            told = json.loads(text)
            if told["version"] != VERSION:
                return None
            return CacheHeader(
                told["naming"],
                told["keeping"],
                told["base"],
                tuple(
                    CacheShard(bytes.fromhex(first), name, int(crc)) for first, name, crc in told["shards"]
                ),
                {_raw(path): list(map(_raw, oids)) for path, oids in told["pieces"].items()},
                {_raw(path): _raw(below) for path, below in told["elsewhere"].items()},
                int(told["files"]),
                {
                    name: CachedFacts(int(version), stamp, oid)
                    for name, (version, stamp, oid) in told.get("facts", {}).items()
                },
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_torn(self) -> bool:
        """Whether the head is not what was written, by whatever version."""
        try:
            with open(os.path.join(self.directory, HEAD), "rb", opener=open_file_only) as file:
                data = file.read()
            checksum, _, text = data.partition(b"\n")
            return not data.startswith(COMPRESSED) and int(checksum) != self._checksum(text)
        except (OSError, ValueError):
            return True

    def read_shard(self, shard: CacheShard) -> bytes | None:
        """The records of one shard, or None where they are not what the head promised."""
        try:
            with open(
                os.path.join(self.directory, os.path.basename(shard.name)), "rb", opener=open_file_only
            ) as file:
                data = file.read()
        except (OSError, ValueError):
            return None
        return data if self._checksum(data) == shard.checksum else None

    def write(self, head: CacheHeader, shards: Iterable[tuple[bytes, bytes] | CacheShard]) -> None:
        """Replace the cache; a shard that did not change is given as it stands, the others as (first, records)."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.directory, 0o700)
        told = _told(head, [item if isinstance(item, CacheShard) else self._write(*item) for item in shards])
        text = json.dumps(told).encode("ascii")
        temporary = os.path.join(self.directory, f"{HEAD}.{os.getpid()}")
        # Not synced: after a power cut a torn file fails its checksum, and the next capture reads everything once.
        with open(temporary, "wb") as file:
            file.write(b"%d\n%b" % (self._checksum(text), text))
        os.rename(temporary, os.path.join(self.directory, HEAD))
        kept = {HEAD, *(name for _, name, _ in told["shards"])}
        for name in os.listdir(self.directory):
            if name not in kept:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.directory, name))

    def forget(self) -> None:
        """Have no cache."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.directory, HEAD))

    def clear(self) -> None:
        """Have no cache, and no file that was part of one."""
        self.forget()
        with contextlib.suppress(OSError):
            for name in os.listdir(self.directory):
                os.unlink(os.path.join(self.directory, name))

    def _write(self, first: bytes, records: bytes) -> CacheShard:
        name = f"shard-{os.urandom(12).hex()}"
        with open(os.path.join(self.directory, name), "xb") as file:
            file.write(records)
        return CacheShard(first, name, self._checksum(records))


_raw = bytes.fromhex


def _told(head: CacheHeader, shards: list[CacheShard]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "naming": head.naming,
        "keeping": head.keeping,
        "base": head.base,
        "shards": [(first.hex(), name, checksum) for first, name, checksum in shards],
        "pieces": {path.hex(): [oid.hex() for oid in oids] for path, oids in head.pieces.items()},
        "elsewhere": {path.hex(): below.hex() for path, below in head.elsewhere.items()},
        "files": head.files,
        "facts": head.facts,
    }
