"""Recognise files that are the same as a sealed one: a hard link, the target of a link, a byte-identical copy.

The sources are the files with secret names, and what links with secret names lead to. A file that shares its number or
its keyed hash with one of them is sealed as well. The sources are remembered beside the cache, for copies made later,
with the hashes of contents that they had before: paths, stats and keyed hashes, readable by the owner alone. To lose
the list costs one look at all names.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from git_envhist.disk import Durability, replace_file
from git_envhist.lazy import dataclass, field
from git_envhist.worktree.stat_cache import COLUMNS

LIST = "sealed-sources"
SHORTEST, MAX_LENGTH = 8, 16 << 20
"""Shorter files are alike by chance. Longer ones are not read twice."""
MAX_IN_DIRECTORY = 1000
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)

Row = tuple[int, ...]


class Source(NamedTuple):
    """One file that is sealed by its name, as it was seen: through a link, its target."""

    path: bytes
    row: Row
    device: int
    number: int
    digest: bytes
    """The keyed hash of its content; nothing where it is too short or too long."""

    @property
    def is_past(self) -> bool:
        """Whether it has this content no more: then only the hash counts, for the number may be another file's."""
        return not self.device and bool(self.digest)

    def as_past(self) -> Source:
        """Return it as one that has this content no more."""
        return self._replace(device=0, number=0)


@dataclass(slots=True)
class Twins:
    """What tells that a file is the same as a source."""

    key: bytes
    files: set[tuple[int, int]] = field(default_factory=set)
    """(device, number)."""
    digests: set[bytes] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)

    def add(self, source: Source) -> None:
        if not source.is_past:
            self.files.add((source.device, source.number))
        if source.digest:
            self.digests.add(source.digest)
            self.sizes.add(source.row[2])

    def as_told(self) -> tuple[object, ...]:
        """What crosses to the workers: the arguments for another one."""
        return (self.key, self.files, self.digests, self.sizes)

    def has_content(self, data: bytes) -> bool:
        """Whether some bytes are those of a source."""
        return len(data) in self.sizes and digest_of(self.key, data) in self.digests


def digest_of(key: bytes, data: bytes) -> bytes:
    """The keyed hash by which copies are recognised; nothing for what too many files contain."""
    if not SHORTEST <= len(data) <= MAX_LENGTH or not data.strip():
        return b""
    return hmac.digest(key, data, "sha256")


def sources_at(key: bytes, path: bytes, place: bytes, known: Source | None = None) -> Iterator[Source]:
    """Yield what a path leads to: a file, or the files of a directory that a link leads to.

    `place`: where the path is. `known`: what was seen there before; an unchanged file is not read again.
    """
    try:
        seen = os.stat(place)
        if stat.S_ISREG(seen.st_mode):
            row = COLUMNS(seen)
            digest = (
                known.digest if known is not None and known.row == row else _read_digest(key, place, seen)
            )
            yield Source(path, row, seen.st_dev, seen.st_ino, digest)
        elif stat.S_ISDIR(seen.st_mode) and os.path.islink(place):
            for name in sorted(os.listdir(place))[:MAX_IN_DIRECTORY]:
                if not os.path.isdir(inside := os.path.join(place, name)):
                    yield from sources_at(key, path, inside)
    except OSError:
        return


def _read_digest(key: bytes, place: bytes, seen: os.stat_result) -> bytes:
    if not SHORTEST <= seen.st_size <= MAX_LENGTH:
        return b""
    descriptor = os.open(place, READ)
    try:
        data = os.pread(descriptor, MAX_LENGTH + 1, 0)
    finally:
        os.close(descriptor)
    return digest_of(key, data)


def read_sources(directory: str, key: bytes) -> list[Source] | None:
    """The remembered sources; None where nothing is remembered that this key wrote."""
    try:
        with open(os.path.join(directory, LIST), "rb") as file:
            first, *rows = json.load(file)
        if first != _check(key):
            return None
        return [
            Source(bytes.fromhex(path), tuple(map(int, row)), int(device), int(number), bytes.fromhex(digest))
            for path, row, device, number, digest in rows
        ]
    except (OSError, ValueError, TypeError):
        return None


def write_sources(directory: str, key: bytes, sources: Iterable[Source]) -> None:
    """Remember the sources; best effort."""
    rows = [[one.path.hex(), one.row, one.device, one.number, one.digest.hex()] for one in sources]
    text = json.dumps([_check(key), *rows]).encode("ascii")
    path = os.path.join(directory, LIST)
    with contextlib.suppress(OSError):
        # Alone: the git directory above it exists, or the repository was moved away meanwhile.
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        replace_file(path, text, durability=Durability.NONE, temporary=f"{path}.{os.getpid()}")


def _check(key: bytes) -> str:
    return hmac.digest(key, b"sources 1", "sha256").hex()
