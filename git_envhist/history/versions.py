"""Read the versions of one path, fact or row along a timeline: the steps that changed it, newest first.

Only ids are compared until two differ: trees of a path that did not change are not read again, and a fact text is
parsed once. `ChangeTime` of a step comes from the manifest of its snapshot.

A top directory with 1,000 entries differs in each snapshot, and decoding it takes 2 ms. So the entry of the newer
snapshot is searched for in its bytes, which takes 10 µs (`python -m tests.benchmarks.why`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from git_envhist.diff.facts import path_of_fact_change
from git_envhist.diff.split_fact_key import name_of, place_of
from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.history.attribution import ChangeTime
from git_envhist.model import EnvPath, Fact, FactChange, ObjectId, Snapshot, StoredAs
from git_envhist.objects.object_readers import PackFirstReader
from git_envhist.objects.trees import DIRECTORY, FILE, decode_by_name
from git_envhist.snapshots.fact_text import SUFFIX, FactText, read_fact, read_fact_text
from git_envhist.snapshots.layout import FACTS, MANIFEST, shard_path, stored_places
from git_envhist.snapshots.manifest import ScannedShard, scan_shard
from git_envhist.snapshots.sealed_facts import FindFactsKey, open_facts
from git_envhist.snapshots.stored_names import RESERVED, stored_name, true_name

V = TypeVar("V")
MAX_ENTRIES = 100_000
"""How many entries of directories are remembered."""
MAX_DIFFERING = 2_000
"""How many changed paths below a directory are looked at."""
MAX_TREES = 32
"""How many directories are remembered with all their entries."""
NS = 1e9


class VersionStep(NamedTuple, Generic[V]):
    """A snapshot that changed a value, and the one before; `before` is None for the oldest snapshot."""

    snapshot: Snapshot
    before: Snapshot | None
    new: V
    old: V | None


def version_steps(
    snapshots: Iterable[Snapshot], value_of: Callable[[Snapshot], V | None], absent: V
) -> Iterator[VersionStep[V]]:
    """Yield the steps that changed a value, newest first; a value of None is not known and passed over."""
    newer: tuple[Snapshot, V] | None = None
    for snapshot in snapshots:
        value = value_of(snapshot)
        if value is None:
            continue
        if newer is not None and newer[1] != value:
            yield VersionStep(newer[0], snapshot, newer[1], value)
        newer = (snapshot, value)
    if newer is not None and newer[1] != absent:
        yield VersionStep(newer[0], None, newer[1], None)


PathId = tuple[int, bytes]
"""git's mode and the raw id of a path in a tree; (0, b"") where it does not exist."""
ABSENT: PathId = (0, b"")
FactRow = tuple[str, str, str, EnvPath, str]
"""Probe, key, value, directory and package manager of a fact."""


class VersionReader:
    """Reads ids, times and facts of many snapshots of one repository."""

    def __init__(
        self,
        git: Git,
        like: str,
        find_key: FindFactsKey | None = None,
        read_file: Callable[[Snapshot, EnvPath], bytes] | None = None,
    ) -> None:
        """`like`: an id, as long as all ids of the repository; `read_file` reads a file as it was on disk."""
        self._others = CatFile(git)
        self._own = PackFirstReader(git, self._others, like)
        self._length = len(like) // 2
        self._entries: dict[tuple[bytes, bytes], PathId] = {}
        self._trees: dict[bytes, bytes] = {}
        self._last: dict[bytes, tuple[PathId, bytes]] = {}
        """By name: the entry that was found last, and its bytes in the tree object."""
        self._texts: dict[tuple[bytes, bytes | None], tuple[FactRow, ...]] = {}
        self._find_key = find_key
        self._read_file = read_file

    def __enter__(self) -> VersionReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._own.close()
        self._others.close()

    def path_id(self, snapshot: Snapshot, path: EnvPath) -> PathId:
        """Return mode and id of a path in a snapshot."""
        for directory, name in stored_places(path):
            tree = self._directory(snapshot, directory)
            if tree is None:
                continue
            for link in (False, True):
                found = self._entry(tree, stored_name(name, top=not directory, link=link))
                if found != ABSENT:
                    return found
        return ABSENT

    def blob(self, oid: bytes) -> bytes:
        """Return the content of a blob; raise Damaged if it is missing."""
        answer = self._own.read(oid.hex())
        if answer is None or answer.kind != "blob":
            raise Damaged(f"object {oid.hex()} is missing")
        return answer.data

    def content(self, snapshot: Snapshot, path: EnvPath) -> bytes | None:
        """Return the bytes of a file as it was on disk; None if it does not exist."""
        if self._read_file is None or self.path_id(snapshot, path) == ABSENT:
            return None
        return self._read_file(snapshot, path)

    def must_exist(self, snapshot: Snapshot, path: EnvPath) -> None:
        """Raise the error of `read_file` if the path is no file of a snapshot."""
        if self._read_file is not None and self.path_id(snapshot, path)[0] in (ABSENT[0], DIRECTORY):
            self._read_file(snapshot, path)

    def stored_as(self, snapshot: Snapshot, path: EnvPath) -> StoredAs:
        """Return how a snapshot stores the bytes of a file; PLAIN for what is no file."""
        for directory, name in stored_places(path):
            shard = self._shard(snapshot, directory)
            row = next((row for row in shard.rows if row.name == name), None) if shard is not None else None
            if row is not None:
                return row.entry().stored
        return StoredAs.PLAIN

    def change_time(self, snapshot: Snapshot, path: EnvPath) -> ChangeTime:
        """Return when a path of a snapshot was written; for one that does not exist, the time of its directory."""
        for directory, name in stored_places(path):
            shard = self._shard(snapshot, directory)
            if shard is None:
                continue
            placed = shard.own.mtime_ns / NS
            below = directory + b"/" + name if directory else name
            inner = self._shard(snapshot, below)
            if inner is not None:
                return ChangeTime(inner.own.mtime_ns / NS, placed, is_directory=True)
            written = next((row.mtime_ns for row in shard.rows if row.name == name), None)
            if written is None:
                return ChangeTime(placed, placed, is_indirect=True)
            return ChangeTime(written / NS, placed)
        above = path.rpartition(b"/")[0]
        return self._time_above(snapshot, EnvPath(above)) if path else ChangeTime()

    def time_below(self, snapshot: Snapshot, before: Snapshot, path: EnvPath) -> ChangeTime:
        """Return in which time everything was written that a step changed at a directory and below it.

        A new file may have an older time, which its package gave it: then the time of its directory shows it.
        """
        since = snapshot.window.start if snapshot.window is not None else before.at.timestamp()
        written: list[float] = []
        placed: list[float] = []
        is_indirect = False
        differing = islice(self._differing(snapshot, before, path), MAX_DIFFERING + 1)
        for count, (changed, is_new, is_gone) in enumerate(differing):
            time = self.change_time(snapshot, changed)
            if time.written is None or time.placed is None or count == MAX_DIFFERING:
                return ChangeTime()
            if is_new or is_gone or time.is_directory:
                placed.append(time.placed)
            if time.is_directory:
                placed.append(time.written)
            elif is_gone or (is_new and time.written < since):
                is_indirect = True
            else:
                written.append(time.written)
        if not written and not placed:
            return ChangeTime()
        return ChangeTime(
            min(written or placed), max(*written, *placed, 0.0), is_indirect=is_indirect, is_whole=True
        )

    def _differing(
        self, snapshot: Snapshot, before: Snapshot, path: EnvPath
    ) -> Iterator[tuple[EnvPath, bool, bool]]:
        """Yield each path at or below a path that differs, and whether it is new or gone.

        A directory is one of them if it is new: then its parent shows when it was made.
        """
        old, new = self.path_id(before, path), self.path_id(snapshot, path)
        above = path.rpartition(b"/")[0]
        if above and self.path_id(before, EnvPath(above)) == ABSENT:
            yield EnvPath(above), True, False
        yield from self._differing_entries(old, new, path)

    def _differing_entries(
        self, old: PathId, new: PathId, path: EnvPath
    ) -> Iterator[tuple[EnvPath, bool, bool]]:
        if old == new:
            return
        before, after = (self._below(one) for one in (old, new))
        if before is None and after is None:
            yield path, old == ABSENT, new == ABSENT
            return
        if before is None and after is not None:
            yield path, True, False
        for name in sorted({*(before or {}), *(after or {})}):
            old_entry, new_entry = ((side or {}).get(name, ABSENT) for side in (before, after))
            yield from self._differing_entries(old_entry, new_entry, EnvPath(path + b"/" + true_name(name)))

    def _below(self, version: PathId) -> dict[bytes, PathId] | None:
        """Return the entries of a directory; None for what is no directory."""
        mode, oid = version
        return decode_by_name(self._tree(oid), self._length) if mode == DIRECTORY else None

    def facts(
        self, snapshot: Snapshot, probes: Sequence[str], is_meant: Callable[[FactRow], bool]
    ) -> frozenset[FactRow] | None:
        """Return the facts of some probes that are meant; None if the snapshot does not know one of them."""
        facts = self._directory(snapshot, RESERVED + b"/" + FACTS)
        listed = {} if facts is None else decode_by_name(self._tree(facts), self._length)
        ids = {name.decode("utf-8", "replace"): oid for name, (mode, oid) in listed.items() if mode == FILE}
        found: list[FactRow] = []
        is_known = False
        for probe in probes:
            if probe in ids:
                is_known = True
                found += filter(is_meant, self._rows(probe, ids[probe], ids.get(probe + SUFFIX)))
        return frozenset(found) if is_known else None

    def _rows(self, probe: str, plain: bytes, sealed: bytes | None) -> tuple[FactRow, ...]:
        key = (plain, sealed)
        if key not in self._texts:
            texts: list[FactText | None] = [read_fact_text(probe, self.blob(plain))]
            if sealed is not None:
                texts.append(open_facts(self._find_key, probe, self.blob(sealed)))
            facts = (read_fact(probe, line) for text in texts if text is not None for line in text.lines)
            self._texts[key] = tuple(_row(fact) for fact in facts if fact is not None)
        return self._texts[key]

    def _directory(self, snapshot: Snapshot, directory: bytes) -> bytes | None:
        """Return the id of a directory's tree; None if it does not exist."""
        oid = bytes.fromhex(snapshot.tree)
        for name in directory.split(b"/") if directory else ():
            mode, oid = self._entry(oid, name)
            if mode != DIRECTORY:
                return None
        return oid

    def _entry(self, tree: bytes, name: bytes) -> PathId:
        """Return mode and id of an entry of a tree."""
        found = self._entries.get((tree, name))
        if found is None:
            if len(self._entries) >= MAX_ENTRIES:
                self._entries.clear()
            found = self._entries[tree, name] = self._find(self._tree(tree), name)
        return found

    def _find(self, data: bytes, name: bytes) -> PathId:
        last = self._last.get(name)
        if last is not None and _has_entry(data, last[1], self._length):
            return last[0]
        if b" %b\0" % name not in data:
            return ABSENT
        found = decode_by_name(data, self._length).get(name, ABSENT)
        if found != ABSENT:
            self._last[name] = (found, b"%o %b\0%b" % (found[0], name, found[1]))
        return found

    def _tree(self, oid: bytes) -> bytes:
        """Return the bytes of a tree object."""
        known = self._trees.get(oid)
        if known is None:
            answer = self._own.read(oid.hex())
            if answer is None or answer.kind != "tree":
                raise Damaged(f"tree {oid.hex()} is missing")
            if len(self._trees) >= MAX_TREES:
                self._trees.clear()
            known = self._trees[oid] = answer.data
        return known

    def _shard(self, snapshot: Snapshot, directory: bytes) -> ScannedShard | None:
        outer, inner = shard_path(directory)
        place = self._directory(snapshot, b"/".join((RESERVED, MANIFEST, outer.encode("ascii"))))
        mode, oid = ABSENT if place is None else self._entry(place, inner.encode("ascii"))
        return None if not mode else scan_shard(self.blob(oid))

    def _time_above(self, snapshot: Snapshot, directory: EnvPath) -> ChangeTime:
        """Return the time of the nearest directory that exists."""
        while True:
            for outer, name in stored_places(directory) if directory else ((b"", b""),):
                shard = self._shard(snapshot, outer + b"/" + name if outer else name)
                if shard is not None:
                    at = shard.own.mtime_ns / NS
                    return ChangeTime(at, at, is_indirect=True)
            if not directory:
                return ChangeTime()
            directory = EnvPath(directory.rpartition(b"/")[0])


def _has_entry(data: bytes, entry: bytes, length: int) -> bool:
    """Return whether a tree certainly has an entry; False if its bytes may be a part of another entry's name."""
    at = data.find(entry)
    # Before an entry comes the end of the previous one, a NUL and an id: a space may be one of a name.
    above = data[max(0, at - length - 1) : at]
    return at == 0 or (at > 0 and above.startswith(b"\0") and b" " not in above)


def _row(fact: Fact) -> FactRow:
    return fact.probe, fact.key, fact.value, fact.at, fact.by


def change_of(row: FactRow) -> FactChange:
    """Return a fact as a change that adds it."""
    probe, key, value, at, by = row
    return FactChange(probe, key, None, value, at, by)


def name_in(row: FactRow) -> str:
    """Return the name in the key of a fact."""
    return name_of(change_of(row))


def place_in(row: FactRow) -> str:
    """Return the place in the key of a fact."""
    return place_of(change_of(row))


def path_of_fact(row: FactRow) -> EnvPath:
    """Return the path that a fact is about; empty for a fact of the machine."""
    return EnvPath(path_of_fact_change(change_of(row)))


def object_id_of(version: PathId) -> ObjectId:
    """Return the id of a version that exists."""
    return ObjectId(version[1])
