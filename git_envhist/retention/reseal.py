"""Seal secret content again with the key in use: rewrites every timeline and the trash.

Files, facts, attachments, staged content and states of services are opened with the keys that sealed them and sealed
with the new one; snapshots signed by a key of this repository are signed with the new one. Every snapshot keeps its
id. Content that cannot be opened stays unchanged. Notes stay unchanged too: later attachments and outputs of checks
need the older key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.diff.compare_snapshots import compare
from git_envhist.errors import SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass
from git_envhist.model import EnvPath, StoredAs
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.trees import DIRECTORY, TYPE, Tree, TreeEditor, decode_tree, encode_tree
from git_envhist.retention.purge import Purger, object_reader
from git_envhist.rewrite.commits import ChainCommit, CommitChange
from git_envhist.rewrite.erase import Reader, content_of
from git_envhist.rewrite.timeline import TimelineState, TimelineTarget
from git_envhist.secrets.keys import Key, KeyRing
from git_envhist.secrets.seal import seal, sealed_key_id, unseal
from git_envhist.service_dumps import KIND as SERVICE_KIND
from git_envhist.snapshots.fact_text import SUFFIX
from git_envhist.snapshots.layout import ATTACHMENTS, FACTS, SERVICES, STAGED, ObjectSink, stored_places
from git_envhist.snapshots.quoting import unquote_path
from git_envhist.snapshots.sealed_facts import KIND as FACTS_KIND
from git_envhist.snapshots.staging import Staging
from git_envhist.snapshots.stored_names import RESERVED, stored_name


@dataclass(slots=True)
class ResealResult:
    """The result of resealing."""

    snapshots: int = 0
    unopened: int = 0
    """Sealed objects that no key of this repository opens; they stay unchanged."""


class HistoryResealer(Purger):
    """Seal the history of a repository again."""

    def reseal(self) -> ResealResult:
        """Seal everything with the key in use, and remove older versions of it from our packs."""
        self._refuse_unfinished_restore()
        self._refuse_lost_snapshots()
        done = ResealResult()
        for timeline in self._timelines():
            self._rewriting.rewrite(
                timeline, lambda state, staging: self._wanted(state, staging, done), keeps=False
            )
        self._clean_up(force=False)
        return done

    def _wanted(self, state: TimelineState, staging: Staging, done: ResealResult) -> TimelineTarget:
        repository, ring = self._repository, self._history.keys
        key = ring.current()
        with (
            CatFile(repository.git) as reader,
            PackWriter(staging.pack_dir, repository.object_format) as writer,
        ):
            resealer = Resealer(object_reader(reader), writer, repository.hash_length, ring, key)
            changes: dict[str, CommitChange] = {}
            for link, sealed in _with_sealed(repository.git, state):
                if link.key is not None and ring.get(link.key) is not None:
                    tree = resealer.reseal(link.tree, sealed)
                    if tree != link.tree or link.key != key.id:
                        changes[link.commit] = CommitChange(tree, signer=key)
            if not changes:
                return TimelineTarget(state.links)
            pack = writer.finish()
        done.snapshots += len(changes)
        done.unopened += len(resealer.unopened)
        trash = tuple((entry, entry.links) for entry in state.trash)
        return TimelineTarget(state.links, trash, changes=changes, packs=(pack,) if pack is not None else ())


class Resealer:
    """Seal the content of snapshots again; each object once."""

    def __init__(self, read: Reader, sink: ObjectSink, width: int, ring: KeyRing, key: Key) -> None:
        self.unopened: set[bytes] = set()
        self._read = read
        self._sink = sink
        self._width = width
        self._ring = ring
        self._key = key
        self._known: dict[tuple[bytes, bytes, bytes], bytes] = {}

    def reseal(self, root: str, files: Iterable[EnvPath]) -> str:
        """Return the tree of a snapshot with everything sealed again; `files`: the paths of its sealed files."""
        top = TreeEditor(self, bytes.fromhex(root))
        for path in files:
            for directory, name in stored_places(path):
                self._put(top.at(directory), stored_name(name, top=not directory), path, b"file")
        for directory, name, place, kind in self._reserved(top):
            self._put(top.at(directory), name, place, kind)
        return (top.write() or bytes.fromhex(root)).hex()

    def tree(self, oid: bytes | None) -> Tree:
        if oid is None:
            return {}
        return {name: (mode, one) for name, mode, one in decode_tree(self._read(oid), self._width)}

    def write_tree(self, tree: Tree) -> bytes:
        return self._sink.add(b"tree", encode_tree([(name, *row) for name, row in tree.items()]))

    def _reserved(self, top: TreeEditor) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
        """Yield (directory, stored name, path that the seal is bound to, kind) of sealed content besides the files."""
        for name in list(_entries(top, FACTS)):
            if name.endswith(SUFFIX.encode("ascii")):
                yield _below(FACTS), name, _below(FACTS, name), FACTS_KIND
        for name, (mode, _) in list(_entries(top, ATTACHMENTS).items()):
            if mode & TYPE == DIRECTORY:
                for directory, chunk in self._chunks(top, _below(ATTACHMENTS, name)):
                    yield directory, chunk, name, b"attachment"
            else:
                yield _below(ATTACHMENTS), name, name, b"attachment"
        index = _entries(top, STAGED).get(b"index")
        for line in self._read(index[1]).splitlines() if index is not None else ():
            yield _below(STAGED, b"content"), content_of(line), unquote_path(line.split(b" ")[0]), b"staged"
        for name in list(_entries(top, SERVICES)):
            for directory, chunk in self._chunks(top, _below(SERVICES, name)):
                yield directory, chunk, name, SERVICE_KIND

    def _chunks(self, top: TreeEditor, directory: bytes) -> Iterator[tuple[bytes, bytes]]:
        level = top.at(directory)
        for name, (mode, _) in list(level.entries.items()) if level is not None else ():
            if mode & TYPE == DIRECTORY:
                yield from self._chunks(top, directory + b"/" + name)
            else:
                yield directory, name

    def _put(self, level: TreeEditor | None, name: bytes, path: bytes, kind: bytes) -> None:
        row = level.entries.get(name) if level is not None else None
        if level is not None and row is not None and row[0] & TYPE != DIRECTORY:
            new = self._resealed(row[1], path, kind)
            if new != row[1]:
                level.put(name, (row[0], new))

    def _resealed(self, oid: bytes, path: bytes, kind: bytes) -> bytes:
        known = self._known.get((oid, path, kind))
        if known is None:
            known = self._known[oid, path, kind] = self._reseal(oid, path, kind)
        return known

    def _reseal(self, oid: bytes, path: bytes, kind: bytes) -> bytes:
        blob = self._read(oid)
        if sealed_key_id(blob) in (None, self._key.id):
            return oid
        try:
            plain = unseal(self._ring.get, path, kind, blob)
        except SealingError:
            self.unopened.add(oid)
            return oid
        return self._sink.add(b"blob", seal(self._key, path, kind, plain))


def _with_sealed(git: Git, state: TimelineState) -> Iterator[tuple[ChainCommit, tuple[EnvPath, ...]]]:
    """Yield each snapshot with the paths of its sealed files; along a chain only differences are read."""
    sealed: dict[EnvPath, None] = {}
    before: str | None = None
    for link in state.links:
        if link.snapshot:
            _follow(git, before, link.tree, sealed)
            before = link.tree
            yield link, tuple(sealed)
    for link in (link for entry in state.trash for link in entry.links if link.snapshot):
        own_sealed: dict[EnvPath, None] = {}
        _follow(git, None, link.tree, own_sealed)
        yield link, tuple(own_sealed)


def _follow(git: Git, before: str | None, after: str, sealed: dict[EnvPath, None]) -> None:
    for change in compare(git, before, after):
        if change.before is not None:
            sealed.pop(change.before.path, None)
        if change.after is not None and change.after.stored is StoredAs.SEALED:
            sealed[change.after.path] = None


def _entries(top: TreeEditor, *names: bytes) -> Tree:
    level = top.at(_below(*names))
    return level.entries if level is not None else {}


def _below(*names: bytes) -> bytes:
    return b"/".join((RESERVED, *names))
