"""What was seen at the last capture, so that unchanged files are not read again; losing it costs time, nothing else.

A head names the shards and says under which rules, on which snapshot and on which files they are true. A shard holds
the records of a range of directories, for one worker. The head is replaced last and names its shards by what they
hold: a crash between the two leaves the old pair. Whatever cannot be read, or belongs to other rules, is no cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence

from git_envhist.capture.records import HEADER
from git_envhist.values import dataclass, field

VERSION = 2
HEAD = "head"
Pack = Callable[[bytes], bytes]
Unpack = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class CacheHead:
    """What the records of a cache are true for."""

    naming: str
    """A digest of the rules that say what is part of the environment."""
    keeping: str
    """A digest of the rules that say how content is kept."""
    base: str
    """The commit whose trees hold every id in the records."""
    bounds: tuple[bytes, ...] = ()
    """The first directory of each shard but the first."""
    shards: tuple[str, ...] = ()
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Directory -> the trees of the pieces of its big files."""
    files: int = 0


class StatCache:
    """The cache of one working tree."""

    def __init__(self, directory: str, pack: Pack, unpack: Unpack) -> None:
        self.directory = directory
        self._pack = pack
        self._unpack = unpack

    def read_head(self) -> CacheHead | None:
        """The head, or None where there is no cache that can be trusted."""
        try:
            with open(os.path.join(self.directory, HEAD), "rb") as file:
                told = json.loads(self._unpack(file.read()))
            if told["version"] != VERSION:
                return None
            return CacheHead(
                told["naming"],
                told["keeping"],
                told["base"],
                tuple(bytes.fromhex(bound) for bound in told["bounds"]),
                tuple(told["shards"]),
                {
                    bytes.fromhex(path): [bytes.fromhex(oid) for oid in oids]
                    for path, oids in told["pieces"].items()
                },
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def read_shard(self, name: str) -> bytes | None:
        """The records of one shard, or None where they are not what the head promised."""
        try:
            with open(os.path.join(self.directory, os.path.basename(name)), "rb") as file:
                packed = file.read()
            if shard_name(packed) != name:
                return None
            return self._unpack(packed)
        except (OSError, ValueError):
            return None

    def write(self, head: CacheHead, shards: Sequence[bytes | str]) -> None:
        """Replace the cache; a shard that did not change is given by its name."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        names = [shard if isinstance(shard, str) else self._write_shard(shard) for shard in shards]
        told = {
            "version": VERSION,
            "naming": head.naming,
            "keeping": head.keeping,
            "base": head.base,
            "bounds": [bound.hex() for bound in head.bounds],
            "shards": names,
            "pieces": {path.hex(): [oid.hex() for oid in oids] for path, oids in head.pieces.items()},
        }
        self._replace(HEAD, self._pack(json.dumps(told).encode("ascii")))
        for name in os.listdir(self.directory):
            if name != HEAD and name not in names:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.directory, name))

    def forget(self) -> None:
        """Have no cache."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.directory, HEAD))

    def _write_shard(self, records: bytes) -> str:
        packed = self._pack(records)
        name = shard_name(packed)
        self._replace(name, packed)
        return name

    def _replace(self, name: str, content: bytes) -> None:
        # Not synced: after a power cut a torn file fails its checksum, and the next capture reads everything once.
        temporary = os.path.join(self.directory, f"{name}.{os.getpid()}")
        with open(temporary, "wb") as file:
            file.write(content)
        os.rename(temporary, os.path.join(self.directory, name))


def shard_name(packed: bytes) -> str:
    return "shard-" + hashlib.sha1(packed, usedforsecurity=False).hexdigest()


def split_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(directory, encoded record) of each record of a shard, without decoding them."""
    at, end = 0, len(data)
    while at < end:
        lengths = HEADER.unpack_from(data, at)[8:16]
        stop = at + HEADER.size + sum(lengths)
        body = at + HEADER.size
        yield data[body : body + lengths[0]], data[at:stop]
        at = stop


def split_evenly(records: Sequence[tuple[bytes, bytes]], parts: int) -> tuple[tuple[bytes, ...], list[bytes]]:
    """Cut records, in the order of their directories, into shards of about one size: the bounds, and the shards."""
    total = sum(len(encoded) for _, encoded in records)
    shards: list[list[bytes]] = [[]]
    bounds: list[bytes] = []
    filled = 0
    for path, encoded in records:
        if len(shards) < parts and filled >= total * len(shards) / parts:
            shards.append([])
            bounds.append(path)
        shards[-1].append(encoded)
        filled += len(encoded)
    return tuple(bounds), [b"".join(shard) for shard in shards]


__all__ = ["CacheHead", "StatCache", "split_evenly", "split_records"]
