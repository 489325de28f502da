"""What the capture of what is here saw and saved: a file that still looks so need not be read again, and where nothing
happens nobody looks twice."""

from __future__ import annotations

from git_envhist.capture.descent import REALM_MARK, join
from git_envhist.capture.known import CacheDamaged, DirectoryRecords
from git_envhist.capture.records import CTIME, INCOMPLETE, INODE, MTIME, SIZE, WIDTH
from git_envhist.capturing.holding import CapturedTree
from git_envhist.capturing.since import KnownWrites, WrittenFile
from git_envhist.model import Entry, EntryKind, EnvPath, RestorePlan, StoredAs
from git_envhist.restoring.carrying import ExecuteResult
from git_envhist.store.contents import ObjectReader
from git_envhist.values import replace

Row = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime."""


class CapturedRows:
    """Rows by realm and path."""

    def __init__(self, records: DirectoryRecords) -> None:
        self._records = records
        self._directory: bytes | None = None
        self._of_directory: dict[bytes, Row] = {}
        """The rows of one directory: a restore asks in the order of the paths, and may ask for very many."""

    def __call__(self, realm: bytes, path: EnvPath) -> Row | None:
        """What was seen at a path; None where that was too young to be relied on, or is not known any more."""
        above, _, name = path.rpartition(b"/")
        directory = _recorded(realm, above)
        if directory != self._directory:
            self._directory, self._of_directory = directory, self._rows(directory)
        row = self._of_directory.get(name)
        # A change time of zero stands for one that proves nothing.
        return row if row is not None and row[4] != 0 else None

    def _rows(self, directory: bytes) -> dict[bytes, Row]:
        try:
            record = self._records.peek(directory)
        except CacheDamaged:
            return {}
        if record is None:
            return {}
        cells, device = record.cells, record.device
        return {
            name: (device, cells[at + INODE], cells[at + SIZE], cells[at + MTIME], cells[at + CTIME])
            for name, at in zip(record.names, range(0, len(cells), WIDTH), strict=True)
        }


def changed_since(held: CapturedTree, commit: str, plan: RestorePlan) -> KnownWrites:
    """What was captured before a plan is carried out, every directory that differs afterwards, for better or worse,
    and the names in it that were touched.

    Where the capture had to look into a directory that is not touched, it looks again whether that is as it was; where
    it found what it could not have, at all that is in it.
    """
    changed: dict[bytes, set[bytes]] = {_recorded(own.realm, own.path): set() for own in plan.directories}
    whole: set[bytes] = set()
    for step in plan.steps:
        above, _, name = step.path.rpartition(b"/")
        changed.setdefault(_recorded(step.realm, above), set()).add(name)
        for entry in (step.before, step.after):
            if entry is not None and entry.kind is EntryKind.DIRECTORY:
                whole.add(_recorded(step.realm, step.path))
    for path in held.taken.gathered.directories:
        changed.setdefault(path, set())
        if not _is_complete(held.taken.records, path):
            whole.add(path)
    found: dict[bytes, frozenset[bytes] | None] = {path: frozenset(names) for path, names in changed.items()}
    return KnownWrites(commit, found | dict.fromkeys(whole), records=held.taken.records)


def written_records(since: KnownWrites, plan: RestorePlan, carried: ExecuteResult) -> KnownWrites:
    """The same, with all that happened in these directories, where all of it is known, and ordinary."""
    if carried.kept or carried.losses or None in since.directories.values():
        return since
    told: dict[bytes, dict[bytes, WrittenFile | None]] = {path: {} for path in since.directories}
    for step in plan.steps:
        above, _, name = step.path.rpartition(b"/")
        entry, row = step.after, carried.rows.get((step.realm, step.path))
        if entry is not None and (row is None or entry.oid is None or not _is_plain(entry)):
            return since
        found = told.setdefault(_recorded(step.realm, above), {})
        found[name] = (
            None if entry is None or row is None or entry.oid is None else WrittenFile(row, entry.oid)
        )
    return replace(since, landed=told)


def _is_plain(entry: Entry) -> bool:
    """Whether a tree holds it, and its line in a manifest says nothing but mode and time, unless its owner differs."""
    return (
        entry.stored is StoredAs.PLAIN
        and entry.kind in (EntryKind.FILE, EntryKind.LINK)
        and not entry.xattrs
        and entry.link_group is None
        and not entry.notes
    )


def _is_complete(records: DirectoryRecords, path: bytes) -> bool:
    """Whether nothing in a directory was missing, or would not stand still: what was, is told again by a look alone."""
    try:
        record = records.peek(path)
    except CacheDamaged:
        return False
    return record is not None and not record.flags & INCOMPLETE


def read_again(contents: ObjectReader, plan: RestorePlan) -> None:
    """Read every byte back that is about to be replaced; `Damaged` where one is not to be had."""
    for step in plan.steps:
        entry = step.before
        if entry is not None and entry.oid is not None:
            blob = contents.blob(entry.oid)
            if entry.stored is StoredAs.PIECES:
                for _ in contents.stream_pieces(blob):
                    pass
            elif entry.stored is StoredAs.SEALED:
                contents.open_sealed(step.shown, blob)


def _recorded(realm: bytes, path: bytes) -> bytes:
    """A directory as records call it."""
    if not realm:
        return path
    return join(REALM_MARK + realm, path) if path else REALM_MARK + realm
