"""What stands in one directory now, and how that becomes its record.

A directory with thousands of entries, of which few are not as they were, is not taken apart: its record is carried
over, and only what was looked at afresh is put in its place. Whoever asks for all of its entries gets them, and has
the record made from these.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable
from typing import Any

from git_envhist.capture.reading import is_gone, timestamp_granularity, unreadable
from git_envhist.capture.records import (
    CELL,
    CTIME,
    INCOMPLETE,
    MTIME,
    NO_ID,
    WIDTH,
    DirectoryRecord,
    pack_rows,
)
from git_envhist.model import MissingReason
from git_envhist.values import dataclass, replace

ROW = CELL * WIDTH


@dataclass(slots=True, eq=False)
class ScannedEntry:
    """One entry that is not a directory, on its way into a record."""

    name: bytes
    row: tuple[int, ...]
    waits: bool = False
    """It is still to be read. (Its whole stat would be 580 bytes, of each file of a first capture.)"""
    oid: bytes = b""
    extras: bytes = b""
    pieces: bytes = b""
    """The tree of its pieces, where it is big."""
    secret: bool | None = None
    """Whether its name says that it is secret, where somebody asked."""
    grows: bool = False
    """It is appended to while it is read: what was there at first is all that counts."""


class ScannedDirectory:
    """What stands in one directory now; `unread` are the leaves whose bytes are not known yet."""

    __slots__ = (
        "_leaves",
        "boundaries",
        "fresh",
        "like",
        "missing",
        "own",
        "path",
        "subdirectories",
        "units",
        "unread",
        "young",
    )

    def __init__(self, path: bytes, own: os.stat_result, *, young: bool = False) -> None:
        self.path = path
        self.own = own
        self.young = young
        """It changed within the clock's grain of our look: not to be trusted next time."""
        self.unread: list[ScannedEntry] = []
        self.subdirectories: list[bytes] = []
        self.boundaries: list[bytes] = []
        self.units: list[tuple[ScannedEntry, list[ScannedEntry]]] = []
        """Databases with their sidecars, to be read while they are held still."""
        self.missing: list[tuple[bytes, str, str]] = []
        """(name, why, detail)."""
        self.like: DirectoryRecord | None = None
        """The record that it is like, but for the entries in `fresh`."""
        self.fresh: dict[int, ScannedEntry] = {}
        self._leaves: list[ScannedEntry] = []

    @property
    def leaves(self) -> list[ScannedEntry]:
        """All entries that are no directories."""
        if self.like is not None:
            self._leaves = [self.fresh.get(number) or leaf for number, leaf in enumerate(_known(self.like))]
            self.like = None
        return self._leaves

    @leaves.setter
    def leaves(self, leaves: list[ScannedEntry]) -> None:
        self.like = None
        self._leaves = leaves

    @property
    def names(self) -> list[bytes]:
        """The names of all entries that are no directories."""
        return self.like.names if self.like is not None else [leaf.name for leaf in self._leaves]

    def names_end_with(self, tails: Iterable[bytes]) -> bool:
        """Whether the name of any entry ends so."""
        joined = b"\0".join(self.names) + b"\0"
        return any(tail + b"\0" in joined for tail in tails)

    def drop(self, leaves: Iterable[ScannedEntry]) -> None:
        """Some turned out to be gone, or cannot be had."""
        # All at once: to look for each among its neighbours takes the square of the time.
        gone = set(leaves)
        if gone:
            self.leaves = [leaf for leaf in self.leaves if leaf not in gone]

    def settle(self, results: Iterable[tuple[Any, ...]]) -> None:
        """Take in what became of leaves that others took: (name, row or None, id, extras, pieces, missing)."""
        leaves = {leaf.name: leaf for leaf in self.unread}
        lost = []
        for name, row, oid, extras, pieces, missing in results:
            leaf = leaves.pop(name)
            self.missing.extend(missing)
            if row is None:
                lost.append(leaf)
            else:
                leaf.row, leaf.oid, leaf.extras, leaf.pieces = tuple(row), oid, extras, pieces
        self.unread = list(leaves.values())
        self.drop(lost)

    @property
    def pending(self) -> list[ScannedEntry]:
        """All that is still to be read."""
        members = [leaf for database, sidecars in self.units for leaf in (database, *sidecars)]
        return [*self.unread, *(leaf for leaf in members if leaf.waits)]

    def miss(self, name: bytes, why: MissingReason, detail: str) -> None:
        self.missing.append((name, why.value, detail))

    def miss_for(self, error: OSError, name: bytes) -> None:
        """List a path that an error kept from being read; nothing if it is gone."""
        if not is_gone(error):
            reason = unreadable(error)
            self.miss(name, reason.why, reason.detail)


def leaf_of(record: DirectoryRecord, number: int) -> ScannedEntry:
    """An entry as a record knows it."""
    row = tuple(array("q", record.columns[number * ROW : (number + 1) * ROW]))
    if number in record.times:
        row = (*row[:MTIME], record.times[number], *row[MTIME + 1 :])
    oid = record.id_at(number, id_width(record))
    return ScannedEntry(
        record.names[number], row, False, oid, record.extras.get(number, b""), record.pieces.get(number, b"")
    )


def id_width(record: DirectoryRecord) -> int:
    """How many bytes an id has in a record."""
    return len(record.ids) // len(record.names) if record.names else 0


def _known(record: DirectoryRecord) -> Iterable[ScannedEntry]:
    return (leaf_of(record, number) for number in range(len(record.names)))


def build_record(visit: ScannedDirectory, started_ns: int, width: int, own_extras: bytes) -> DirectoryRecord:
    """The record of a visited directory once all of its leaves are read."""
    own = visit.own
    record = (
        _from_leaves(visit, started_ns, width)
        if visit.like is None
        else _carried_over(visit.like, visit.fresh, started_ns, width)
    )
    record.ctime_ns = 0 if visit.young else own.st_ctime_ns
    record.mtime_ns, record.inode, record.device = own.st_mtime_ns, own.st_ino, own.st_dev
    record.mode, record.uid, record.gid = own.st_mode, own.st_uid, own.st_gid
    record.flags = INCOMPLETE if visit.missing else 0
    record.subdirectories, record.boundaries = visit.subdirectories, visit.boundaries
    record.extras.pop(-1, None)
    if own_extras:
        record.extras[-1] = own_extras
    return record


def _from_leaves(visit: ScannedDirectory, started_ns: int, width: int) -> DirectoryRecord:
    leaves = visit.leaves
    record = DirectoryRecord(visit.path, names=[leaf.name for leaf in leaves])
    record.columns, record.times = pack_rows([_settled(leaf.row, started_ns) for leaf in leaves])
    record.ids = b"".join(leaf.oid or NO_ID[:width] for leaf in leaves)
    record.extras = {index: leaf.extras for index, leaf in enumerate(leaves) if leaf.extras}
    record.pieces = {index: leaf.pieces for index, leaf in enumerate(leaves) if leaf.pieces}
    return record


def _carried_over(
    like: DirectoryRecord, fresh: dict[int, ScannedEntry], started_ns: int, width: int
) -> DirectoryRecord:
    columns, ids = bytearray(like.columns), bytearray(like.ids)
    extras, pieces, times = dict(like.extras), dict(like.pieces), dict(like.times)
    for index, leaf in fresh.items():
        columns[index * ROW : (index + 1) * ROW], wide = pack_rows([_settled(leaf.row, started_ns)])
        ids[index * width : (index + 1) * width] = leaf.oid or NO_ID[:width]
        for kept, value in ((extras, leaf.extras), (pieces, leaf.pieces)):
            kept.pop(index, None)
            if value:
                kept[index] = value
        times.pop(index, None)
        if wide:
            times[index] = wide[0]
    return replace(
        like, columns=bytes(columns), ids=bytes(ids), extras=extras, pieces=pieces, times=times, below=b""
    )


def is_settled(ctime_ns: int, mtime_ns: int, started_ns: int) -> bool:
    """Whether something can no more change and keep its time stamps."""
    return (
        ctime_ns + timestamp_granularity(ctime_ns) < started_ns
        and mtime_ns + timestamp_granularity(mtime_ns) < started_ns
    )


def _settled(row: tuple[int, ...], started_ns: int) -> tuple[int, ...]:
    # An entry as young as the capture can change once more and keep its time stamps: a change time of zero never
    # matches, so that it is read afresh next time.
    return row if is_settled(row[CTIME], row[MTIME], started_ns) else (0, *row[1:])
