"""The bytes of one file of a snapshot, as they were on disk: sealed ones opened, pieces put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from git_envhist.errors import Damaged, EnvhistError
from git_envhist.model import Entry, EnvPath, ObjectId, StoredAs
from git_envhist.store.bulk import BulkReader
from git_envhist.store.compare import TreeReader
from git_envhist.store.git import Git
from git_envhist.store.layout import MANIFEST, PIECES, RESERVED, stored_places
from git_envhist.store.manifest import read_shard, shard_path
from git_envhist.store.names import stored_name
from git_envhist.store.objects import CatFile
from git_envhist.store.pointers import pieces_path, read_pointer
from git_envhist.store.quoting import show
from git_envhist.store.trees import decode_tree

OpenSealed = Callable[[EnvPath, bytes], bytes]


class NoSuchFile(EnvhistError):
    """The snapshot holds no bytes for a path."""

    code = "no-such-path"
    usual_hint = "'git envlog show <rev>' tells what it holds"
    exit_code = 4


class FileReader:
    """Reads files of one snapshot's tree."""

    def __init__(self, git: Git, tree: str, open_sealed: OpenSealed, objects_dir: str) -> None:
        self._reader = CatFile(git)
        self._bulk = BulkReader(git, objects_dir)
        self._tree = tree
        self._length = len(tree) // 2
        self._look = TreeReader(self._reader, tree, self._length)
        self._open_sealed = open_sealed

    def read(self, path: EnvPath) -> Iterator[bytes]:
        """The bytes of a file, block by block; of a link its target."""
        entry, oid = self.entry(path), self._blob_id(path)
        if oid is None:
            raise _no_bytes(path, entry)
        data = self._blob(oid.hex(), path)
        stored = entry.stored if entry is not None else StoredAs.PLAIN
        if stored is StoredAs.SEALED:
            yield self._open_sealed(path, data)
        elif stored is StoredAs.PIECES:
            yield from self._pieces(read_pointer(data).tree, path)
        else:
            yield data

    def entry(self, path: EnvPath) -> Entry | None:
        """What the manifest says of a path."""
        places = stored_places(path)
        return next((entry for place in places if (entry := self._entry(*place, path)) is not None), None)

    def _blob_id(self, path: EnvPath) -> ObjectId | None:
        stored = [
            (directory + b"/" if directory else b"") + stored_name(name, top=not directory, link=link)
            for directory, name in stored_places(path)
            for link in (False, True)
        ]
        return next((oid for one in stored if (oid := self._look.look_up(one)) is not None), None)

    def _entry(self, directory: bytes, name: bytes, path: EnvPath) -> Entry | None:
        outer, inner = shard_path(directory)
        place = b"/".join((RESERVED, MANIFEST, outer.encode(), inner.encode()))
        oid = self._look.look_up(place)
        if oid is None:
            return None
        shard = read_shard(self._blob(oid.hex(), path))
        return next((entry for entry in shard.entries if entry.path.rpartition(b"/")[2] == name), None)

    def reserved(self, name: bytes) -> bytes | None:
        """A list that stands below the reserved name, or None where there is none."""
        oid = self._look.look_up(RESERVED + b"/" + name)
        return self._blob(oid.hex(), EnvPath(name)) if oid is not None else None

    def close(self) -> None:
        self._reader.close()
        self._bulk.close()

    def _pieces(self, tree: bytes, path: EnvPath) -> Iterator[bytes]:
        outer, inner = pieces_path(tree)
        place = b"/".join((RESERVED, PIECES, outer.encode(), inner.encode()))
        if self._look.look_up(place) != tree:
            raise Damaged(f"the pieces of a file are not in the snapshot: '{show(path)}'")
        for _, _, run in self._listed(tree, path):
            for piece in self._bulk.read([oid.hex() for _, _, oid in self._listed(run, path)]):
                if piece is None:
                    raise _bytes_missing(path)
                yield piece

    def _listed(self, tree: bytes, path: EnvPath) -> list[tuple[bytes, int, bytes]]:
        answer = self._reader.read(tree.hex())
        if answer is None or answer[0] != "tree":
            raise Damaged(
                f"pieces are missing of '{show(path)}'", hint="'git envlog fsck' says what else is missing"
            )
        return decode_tree(answer[1], self._length)

    def _blob(self, oid: str, path: EnvPath) -> bytes:
        answer = self._reader.read(oid)
        if answer is None:
            raise _bytes_missing(path)
        if answer[0] != "blob":
            raise NoSuchFile(
                f"not a file in this snapshot: '{show(path)}'",
                hint="'git ls-tree <id>:<path>' lists a directory",
            )
        return answer[1]


def _bytes_missing(path: EnvPath) -> Damaged:
    return Damaged(f"bytes are missing of '{show(path)}'", hint="'git envlog fsck' says what else is missing")


def _no_bytes(path: EnvPath, entry: Entry | None) -> NoSuchFile:
    if entry is None:
        return NoSuchFile(
            f"not in this snapshot: '{show(path)}'", hint="'git envlog -- <path>' lists those that changed it"
        )
    what = "recorded by its hash only" if entry.stored is StoredAs.FINGERPRINT else _kind_of(entry)
    return NoSuchFile(f"no bytes are kept of '{show(path)}': it is {what}")


def _kind_of(entry: Entry) -> str:
    return f"a {entry.kind.name.lower().replace('_', ' ')}"
