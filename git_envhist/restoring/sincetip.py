"""What differs between what is here and a moment, given what differs between the newest snapshot and that moment.

The second is found out while the workers look. What they then found to be another one is told by records, old and new:
nothing is read for it. Where anything is out of the ordinary there is no answer, and trees are compared as ever.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Sequence

from git_envhist.capture.descent import path_below_root, root_name_of
from git_envhist.capture.records import INCOMPLETE, MODE, MTIME, WIDTH, DirectoryRecord, differing
from git_envhist.capture.visits import ROW, id_width
from git_envhist.capturing.merge import RecordChanges
from git_envhist.capturing.shards import stored_directory
from git_envhist.model import DirectoryListing, DirectoryPair, Entry, EntryKind, EnvPath, ObjectId, StoredAs

KINDS = {stat.S_IFREG: EntryKind.FILE, stat.S_IFLNK: EntryKind.LINK}
Key = tuple[bytes, EnvPath]
Read = Callable[[list[bytes]], Iterable[DirectoryPair]]


class NeedsFullCompare(Exception):
    """Something that only the trees can tell."""


def pairs_from_scan(
    pairs: Sequence[DirectoryPair], merged: RecordChanges, read: Read
) -> list[DirectoryPair] | None:
    """The pairs of what is here; None where records do not tell them. `read` gives those of directories by their stored
    paths: nothing is restored from a directory that could not be read."""
    if merged.gone or merged.before.keys() != merged.changed.keys():
        return None
    found: dict[Key, DirectoryPair] = {(pair.realm, pair.path): pair for pair in pairs}
    try:
        changed = {_key(path): path for path in merged.changed}
        unread = [stored_directory(path) for key, path in changed.items() if key not in found]
        found.update(((pair.realm, pair.path), pair) for pair in read(unread))
        for key, path in changed.items():
            if key not in found:
                raise NeedsFullCompare
            found[key] = _brought_up(found[key], merged.before[path], merged.changed[path])
    except NeedsFullCompare:
        return None
    return list(found.values())


def _key(path: bytes) -> Key:
    return root_name_of(path), EnvPath(path_below_root(path))


def _brought_up(pair: DirectoryPair, old: DirectoryRecord, new: DirectoryRecord) -> DirectoryPair:
    """The pair of one directory, its side before as the new record has it."""
    _refuse_unusual(old, new)
    if pair.before is None or pair.after is None:
        raise NeedsFullCompare
    before, after = dict(pair.before.entries), dict(pair.after.entries)
    left_out = pair.left_out
    was, now = _Entries(pair.path, old), _Entries(pair.path, new)
    for index in _changed(old, new):
        name = new.names[index]
        if name not in before:
            # Nothing was told of it: it was the same on both sides.
            after[name] = was.at(index)
            left_out -= 1
        before[name] = now.at(index)
    own = DirectoryListing(_own(pair.path, new), before)
    return DirectoryPair(pair.realm, pair.path, own, DirectoryListing(pair.after.own, after), left_out)


def _refuse_unusual(old: DirectoryRecord, new: DirectoryRecord) -> None:
    if (old.flags | new.flags) & INCOMPLETE or old.extras != new.extras:
        raise NeedsFullCompare
    if old.times or new.times:
        raise NeedsFullCompare
    for name in ("uid", "gid", "names", "subdirectories", "boundaries"):
        if getattr(old, name) != getattr(new, name):
            raise NeedsFullCompare
    if new.extras.get(-1) != b" u=%d g=%d" % (new.uid, new.gid):
        raise NeedsFullCompare


def _changed(old: DirectoryRecord, new: DirectoryRecord) -> Iterable[int]:
    """The entries of which a snapshot says something else than it did."""
    width = id_width(new)
    found = set(differing(old.ids, new.ids, width)) if width else set()
    cells, before = new.cells, old.cells
    for index in differing(old.columns, new.columns, ROW):
        at = index * WIDTH
        if (before[at + MTIME], before[at + MODE]) != (cells[at + MTIME], cells[at + MODE]):
            found.add(index)
    return sorted(found)


def _own(path: EnvPath, record: DirectoryRecord) -> Entry:
    mode = record.mode & 0o7777
    return Entry(path, EntryKind.DIRECTORY, mode, record.mtime_ns, uid=record.uid, gid=record.gid)


class _Entries:
    """The plain files and links of a record."""

    def __init__(self, path: EnvPath, record: DirectoryRecord) -> None:
        self._prefix = path + b"/" if path else b""
        self._record = record
        self._cells = record.cells
        self._width = id_width(record)

    def at(self, index: int) -> Entry:
        record, at = self._record, index * WIDTH
        mode = self._cells[at + MODE]
        kind = KINDS.get(stat.S_IFMT(mode))
        oid = record.id_at(index, self._width)
        if kind is None or index in record.extras or not any(oid):
            raise NeedsFullCompare
        path = EnvPath(self._prefix + record.names[index])
        owner = (record.uid, record.gid)
        mtime = self._cells[at + MTIME]
        return Entry(path, kind, mode & 0o7777, mtime, ObjectId(oid), StoredAs.PLAIN, *owner)
