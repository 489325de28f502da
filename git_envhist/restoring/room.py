"""Whether there is room for all that a restore brings, told before anything is saved or made.

What stands here keeps its room until the end, so what comes needs room of its own. A file that was full of holes gets
them again: of a file in pieces those count that hold something.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from git_envhist.errors import StorageFull
from git_envhist.model import Entry, EntryKind, PlanAction, RestorePlan, StoredAs
from git_envhist.restore.slots import FAN_OUT
from git_envhist.settings import BIG_FILE
from git_envhist.store.contents import ObjectReader
from git_envhist.store.git import Git
from git_envhist.store.pointers import read_pointer
from git_envhist.store.sizes import HeaderReader
from git_envhist.store.trees import object_id
from git_envhist.system import SYSTEM

OURS = 1 << 20
"""What the journal, the slots and the moment that is taken afterwards need at least."""
EACH = 1 << 9
"""What they need for every path."""
OUR_INODES = 32
"""Inodes that a restore needs besides the files it writes: slots, the journal, and the two snapshots that it takes."""
LARGEST = {StoredAs.PLAIN: BIG_FILE, StoredAs.SEALED: 8 * BIG_FILE, StoredAs.FINGERPRINT: 0}
"""What a file holds at most that is kept in such a way; hardly any secret is so large."""


class SpaceNeeded(NamedTuple):
    """What a file system has to take in."""

    paths: int
    files: list[Entry]


def refuse_without_room(
    plan: RestorePlan, bases: Mapping[bytes, bytes], state: str, git: Git, contents: ObjectReader
) -> None:
    """Raise `StorageFull` if a file system cannot hold what comes, or that of `state` what the restore itself needs."""
    if not SYSTEM.statvfs:
        return
    for device, coming in _by_device(plan, bases, os.fsencode(state)).items():
        place = os.statvfs(device)
        if not place.f_blocks:
            continue  # a file system that does not tell of its size
        room = place.f_bavail * place.f_frsize - OURS - EACH * coming.paths
        inodes = coming.paths + (coming.paths >> FAN_OUT) + OUR_INODES
        if place.f_files and inodes > place.f_favail:
            raise _full(f"{inodes:,} inodes are needed, and {place.f_favail:,} are free")
        if _at_most(coming.files, contents) > room:
            needed = _exactly(coming.files, git, contents, place.f_frsize, room)
            if needed > room:
                raise _full(f"{needed:,} bytes are needed, and {max(0, room):,} are there")


def _by_device(plan: RestorePlan, bases: Mapping[bytes, bytes], state: bytes) -> dict[bytes, SpaceNeeded]:
    """Return what comes, by a directory on the file system that takes it in; that of `state` is always among them."""
    place_of, ours = _one_a_device(bases, state)
    found = {ours: SpaceNeeded(0, [])}
    groups: set[tuple[bytes, int]] = set()
    for realm, entry in _entries(plan):
        coming = found.setdefault(place_of[realm], SpaceNeeded(0, []))
        found[place_of[realm]] = coming._replace(paths=coming.paths + 1)
        if entry.link_group is not None:
            if (realm, entry.link_group) in groups:
                continue
            groups.add((realm, entry.link_group))
        if entry.kind is EntryKind.FILE and entry.oid is not None:
            coming.files.append(entry)
    return found


def _one_a_device(bases: Mapping[bytes, bytes], state: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Return one directory of each root's file system, and the one of the file system of `state`."""
    devices: dict[int, bytes] = {}
    places = {realm: devices.setdefault(os.stat(place).st_dev, place) for realm, place in bases.items()}
    return places, devices.setdefault(os.stat(state).st_dev, state)


def _entries(plan: RestorePlan) -> Iterator[tuple[bytes, Entry]]:
    for step in plan.steps:
        if step.after is not None and step.action is not PlanAction.ADJUST:
            yield step.realm, step.after
            for entry in step.below:
                yield step.realm, entry


def _at_most(files: Iterable[Entry], contents: ObjectReader) -> int:
    """What files hold at most, by how they are kept: mostly far less than there is room for, and git is not asked."""
    return sum(
        read_pointer(contents.blob(entry.oid)).size
        if entry.stored is StoredAs.PIECES and entry.oid is not None
        else LARGEST[entry.stored]
        for entry in files
    )


def _exactly(files: list[Entry], git: Git, contents: ObjectReader, block: int, room: int) -> int:
    with closing(HeaderReader(git)) as sizes:
        told = sizes.of_many(entry.oid for entry in files if entry.oid is not None)
        needed = 0
        for entry in files:
            assert entry.oid is not None
            size = told[entry.oid].size
            if entry.stored is StoredAs.PIECES:
                size = _in_pieces(contents.blob(entry.oid), contents, sizes, room)
            needed += -(-size // block) * block
    return needed


def _in_pieces(pointer: bytes, contents: ObjectReader, sizes: HeaderReader, room: int) -> int:
    size = read_pointer(pointer).size
    if size <= room:
        return size
    counted = contents.count_pieces(pointer)
    known = sizes.of_many(counted)
    return sum(
        known[piece].size * often
        for piece, often in counted.items()
        if not _is_hole(piece, known[piece].size)
    )


def _is_hole(piece: bytes, size: int) -> bool:
    return object_id(b"blob", bytes(size), "sha1" if len(piece) == 20 else "sha256") == piece


def _full(why: str) -> StorageFull:
    return StorageFull(f"no room for what is to be restored: {why}", hint="make room; nothing was changed")
