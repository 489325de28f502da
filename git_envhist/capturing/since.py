"""A second look at an environment that was captured a moment ago, by the same command and under the same locks.

A restore records where it arrived. Of a hundred thousand files it wrote a few, each of them verified; the others are as
the capture before it saw them, or somebody changed them meanwhile: the next capture finds that, as it would had they
been changed right after a look at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from git_envhist.capture.known import DirectoryRecords
from git_envhist.capture.statcache import CacheHeader
from git_envhist.values import dataclass

Wanted = Mapping[bytes, frozenset[bytes] | None]
"""Directories, and in each the names of which something may have happened; None where any may be another one."""


class WrittenFile(NamedTuple):
    """A file or link that was brought here and read back, with nothing to be said of it but its mode and time."""

    row: tuple[int, int, int, int, int]
    """Change time, modification time, size, inode and mode, right before it was read."""
    oid: bytes


Told = Mapping[bytes, Mapping[bytes, WrittenFile | None]]
"""Directories, and in each the names of which something happened: what stands there now, None where nothing does."""


@dataclass(frozen=True, slots=True)
class KnownWrites:
    """An environment as it was taken a moment ago."""

    commit: str
    """The snapshot that was made of it."""
    directories: Wanted
    """Where something may have happened since: no other one is looked at again, and of its entries no others."""
    landed: Told | None = None
    """What happened there, where all of it is known."""
    records: DirectoryRecords | None = None
    """What was known then of every directory."""


def directories_to_scan(since: KnownWrites | None, head: CacheHeader | None) -> Wanted | None:
    """The directories that need be looked at; None for all, where the records are not those of that moment."""
    if since is None or head is None or head.base != since.commit:
        return None
    return since.directories
