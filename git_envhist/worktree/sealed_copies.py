"""Recognise copies of sealed files: hard links, targets of symbolic links, files with equal content.

Sources are the files with secret names and the targets of links with secret names. A file with the inode or
the keyed hash of a source is sealed, too. The list of sources, with the hashes of their earlier contents, is
stored next to the stat cache, readable only by the owner. Losing the list costs one pass over all names.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from git_envhist.disk import Durability, read_exactly, replace_file
from git_envhist.lazy import dataclass, field
from git_envhist.worktree.stat_cache import COLUMNS

LIST = "sealed-sources"
SHORTEST, MAX_LENGTH = 8, 16 << 20
"""Shorter contents can be equal by chance; longer ones are not read twice."""
MAX_IN_DIRECTORY = 1000
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)

Row = tuple[int, ...]


class SealedSource(NamedTuple):
    """A file sealed by its name; through a symbolic link, its target."""

    path: bytes
    row: Row
    device: int
    number: int
    digest: bytes
    """Keyed hash of its content; empty if it is too short or too long."""

    @property
    def is_past(self) -> bool:
        """Return whether the file had this content earlier; copies are then found by the hash, not by the inode.

        The system may have given the inode to another file.
        """
        return not self.device and bool(self.digest)

    def as_past(self) -> SealedSource:
        """Return a source for its earlier content."""
        return self._replace(device=0, number=0)


@dataclass(slots=True)
class SealedSources:
    """Test whether a file is a copy of a source."""

    key: bytes
    files: set[tuple[int, int]] = field(default_factory=set)
    """(device, inode)."""
    digests: set[bytes] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)

    def add(self, source: SealedSource) -> None:
        if not source.is_past:
            self.files.add((source.device, source.number))
        if source.digest:
            self.digests.add(source.digest)
            self.sizes.add(source.row[2])

    def as_arguments(self) -> tuple[object, ...]:
        """Return the constructor arguments, to send this object to workers."""
        return (self.key, self.files, self.digests, self.sizes)

    def has_content(self, data: bytes) -> bool:
        """Return whether `data` is the content of a source."""
        return len(data) in self.sizes and digest_of(self.key, data) in self.digests


def digest_of(key: bytes, data: bytes) -> bytes:
    """Return the keyed hash that recognises copies; empty for contents that many files have."""
    if not SHORTEST <= len(data) <= MAX_LENGTH or not data.strip():
        return b""
    return hmac.digest(key, data, "sha256")


def sources_at(
    key: bytes, path: bytes, place: bytes, known: SealedSource | None = None
) -> Iterator[SealedSource]:
    """Yield the sources that a path leads to: a file, or the files of a linked directory.

    `place` is the path on disk. `known` is the source found there before; an unchanged file is not read
    again.
    """
    try:
        seen = os.stat(place)
        if stat.S_ISREG(seen.st_mode):
            row = COLUMNS(seen)
            digest = (
                known.digest if known is not None and known.row == row else _read_digest(key, place, seen)
            )
            yield SealedSource(path, row, seen.st_dev, seen.st_ino, digest)
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
        data = read_exactly(descriptor, MAX_LENGTH + 1, 0)
    finally:
        os.close(descriptor)
    return digest_of(key, data)


def read_sources(directory: str, key: bytes) -> list[SealedSource] | None:
    """Return the stored sources; None if there are none written with this key."""
    try:
        with open(os.path.join(directory, LIST), "rb") as file:
            first, *rows = json.load(file)
        if first != _check(key):
            return None
        return [
            SealedSource(
                bytes.fromhex(path), tuple(map(int, row)), int(device), int(number), bytes.fromhex(digest)
            )
            for path, row, device, number, digest in rows
        ]
    except (OSError, ValueError, TypeError):
        return None


def write_sources(directory: str, key: bytes, sources: Iterable[SealedSource]) -> None:
    """Store the sources; errors are ignored."""
    rows = [[one.path.hex(), one.row, one.device, one.number, one.digest.hex()] for one in sources]
    text = json.dumps([_check(key), *rows]).encode("ascii")
    path = os.path.join(directory, LIST)
    with contextlib.suppress(OSError):
        # os.mkdir, not makedirs: if the git directory was moved away, it must not be created again.
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        replace_file(path, text, durability=Durability.NONE, temporary=f"{path}.{os.getpid()}")


def sweep_sources(directory: str) -> None:
    """Remove the incomplete lists of killed captures; a capture that writes one meanwhile writes none."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(LIST + "."):
                os.unlink(os.path.join(directory, name))


def _check(key: bytes) -> str:
    return hmac.digest(key, b"sources 1", "sha256").hex()
