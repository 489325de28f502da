"""Compares the records of directories with what is there: most of the time of a capture after which little changed.

Measured on 100,000 files in 11,900 directories, by the processor: 0.17 s for `lstat` of every file, 0.03 for going into
every directory and looking at it, 0.035 for comparing, 0.02 for records and names. A loop over `scandir` takes twice
that. A directory whose own time stamps are unchanged has the entries it had, so that it is not listed.
tests/benchmarks/scan.py measures it again.
"""

from __future__ import annotations

import errno
import gc
import os
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

from git_envhist.capture.descent import REALM_MARK, is_realm_top, path_below_root, root_name_of
from git_envhist.capture.records import COLUMNS, GLANCE, HEADER, INCOMPLETE, cut, stat_columns

Enter = Callable[[bytes], object]


def differing_records(data: bytes, bases: Mapping[bytes, bytes], enter: Enter) -> Iterator[bytes]:
    """The encoded records of a shard that are not, entry by entry, as their directories are."""
    glance, size, bound = GLANCE.unpack_from, HEADER.size, len(data)
    go, at = _goer(bases, enter), 0
    while at < bound:
        length, ctime, mtime, inode, device, flags, path_size, names_size, columns_size = glance(data, at)
        if length < size or at + length > bound:
            raise ValueError("a record of an impossible length")
        start = at + size
        names_at = start + path_size
        columns_at = names_at + names_size
        try:
            go(data[start:names_at])
            own = os.lstat(b".")
            same = (
                own.st_ctime_ns == ctime
                and own.st_mtime_ns == mtime
                and own.st_ino == inode
                and own.st_dev == device
                and not flags & INCOMPLETE
                and (
                    not names_size
                    or _columns(data[names_at:columns_at].split(b"\0"))
                    == data[columns_at : columns_at + columns_size]
                )
            )
        except OSError:
            same = False
        if not same:
            yield data[at : at + length]
        at += length


def root_directories_in(data: bytes) -> Iterator[bytes]:
    """The tops of roots that a shard has a record of."""
    # They are rare, and stand where the paths that begin with their mark do: first of all.
    for path, _ in cut(data):
        if is_realm_top(path):
            yield path
        elif not path.startswith(REALM_MARK):
            return


def _columns(names: list[bytes]) -> bytes:
    try:
        return array("q", list(chain.from_iterable(map(COLUMNS, map(os.lstat, names))))).tobytes()
    except OverflowError:
        return stat_columns(names)


def _goer(bases: Mapping[bytes, bytes], enter: Enter) -> Callable[[bytes], None]:
    """Goes into a directory by its whole name.

    That may lead through a link which somebody made meanwhile. What it leads to is only compared: unless it is the
    very directory that the record tells of, by its numbers and times, the record counts as changed, and then the
    directory is entered step by step through no link.
    """
    top = bases.get(b"", b"")

    def go(path: bytes) -> None:
        base = top
        if path.startswith(REALM_MARK):
            base, path = bases.get(root_name_of(path), b""), path_below_root(path)
        if not base:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        try:
            os.chdir(base + b"/" + path if path else base)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            enter(path)

    return go


@contextmanager
def gc_paused() -> Iterator[None]:
    """Millions of short-lived values and no cycle among them: looking for garbage is lost time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
