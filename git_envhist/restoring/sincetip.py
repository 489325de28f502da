"""What differs between what is here and a moment, given what differs between the newest snapshot and that moment.

The second is found out while the workers look. What they then found to be another one is told by records, old and new:
nothing is read for it. Where anything is out of the ordinary there is no answer, and trees are compared as ever.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Sequence

from git_envhist.capture.descent import below_realm, realm_of
from git_envhist.capture.records import INCOMPLETE, MODE, MTIME, WIDTH, Record, differing
from git_envhist.capture.visits import ROW, id_width
from git_envhist.capturing.merge import Merged
from git_envhist.capturing.shards import stored_directory
from git_envhist.model import Entry, EntryKind, EnvPath, Listing, ObjectId, Pair, StoredAs

KINDS = {stat.S_IFREG: EntryKind.FILE, stat.S_IFLNK: EntryKind.LINK}
Key = tuple[bytes, EnvPath]
Read = Callable[[list[bytes]], Iterable[Pair]]


class Unusual(Exception):
    """Something that only the trees can tell."""


def since_tip(pairs: Sequence[Pair], merged: Merged, read: Read) -> list[Pair] | None:
    """The pairs of what is here; None where records do not tell them. `read` gives those of directories by their stored
    paths: nothing is restored from a directory that could not be read."""
    if merged.gone or merged.before.keys() != merged.changed.keys():
        return None
    found: dict[Key, Pair] = {(pair.realm, pair.path): pair for pair in pairs}
    try:
        changed = {_key(path): path for path in merged.changed}
        unread = [stored_directory(path) for key, path in changed.items() if key not in found]
        found.update(((pair.realm, pair.path), pair) for pair in read(unread))
        for key, path in changed.items():
            if key not in found:
                raise Unusual
            found[key] = _brought_up(found[key], merged.before[path], merged.changed[path])
    except Unusual:
        return None
    return list(found.values())


def _key(path: bytes) -> Key:
    return realm_of(path), EnvPath(below_realm(path))


def _brought_up(pair: Pair, old: Record, new: Record) -> Pair:
    """The pair of one directory, its side before as the new record has it."""
    _refuse_unusual(old, new)
    if pair.before is None or pair.after is None:
        raise Unusual
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
    own = Listing(_own(pair.path, new), before)
    return Pair(pair.realm, pair.path, own, Listing(pair.after.own, after), left_out)


def _refuse_unusual(old: Record, new: Record) -> None:
    if (old.flags | new.flags) & INCOMPLETE or old.extras != new.extras:
        raise Unusual
    if old.times or new.times:
        raise Unusual
    for name in ("uid", "gid", "names", "subdirectories", "boundaries"):
        if getattr(old, name) != getattr(new, name):
            raise Unusual
    if new.extras.get(-1) != b" u=%d g=%d" % (new.uid, new.gid):
        raise Unusual


def _changed(old: Record, new: Record) -> Iterable[int]:
    """The entries of which a snapshot says something else than it did."""
    width = id_width(new)
    found = set(differing(old.ids, new.ids, width)) if width else set()
    cells, before = new.cells, old.cells
    for index in differing(old.columns, new.columns, ROW):
        at = index * WIDTH
        if (before[at + MTIME], before[at + MODE]) != (cells[at + MTIME], cells[at + MODE]):
            found.add(index)
    return sorted(found)


def _own(path: EnvPath, record: Record) -> Entry:
    mode = record.mode & 0o7777
    return Entry(path, EntryKind.DIRECTORY, mode, record.mtime_ns, uid=record.uid, gid=record.gid)


class _Entries:
    """The plain files and links of a record."""

    def __init__(self, path: EnvPath, record: Record) -> None:
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
            raise Unusual
        path = EnvPath(self._prefix + record.names[index])
        owner = (record.uid, record.gid)
        mtime = self._cells[at + MTIME]
        return Entry(path, kind, mode & 0o7777, mtime, ObjectId(oid), StoredAs.PLAIN, *owner)
