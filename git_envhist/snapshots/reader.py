"""Read files, trees and manifest shards of one snapshot, and validate everything read.

`FileReader` returns the bytes of single files. `SnapshotReader` reads a snapshot lazily for a restore or a
comparison: for each directory its tree (bytes), its manifest shard (metadata) and its place in the environment.
`with_damaged_path` finds the path that made a comparison fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple, Protocol

from git_envhist.errors import FSCK_HINT, Damaged, EnvhistError, GitFailed
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.lazy import once
from git_envhist.model import Entry, EnvPath, ObjectId, StoredAs
from git_envhist.objects.object_readers import FORMATS, ChunkReader, TreeReader, Verify
from git_envhist.objects.trees import DIRECTORY, decode_by_name, decode_tree
from git_envhist.printable_text import display_bytes
from git_envhist.snapshots.chunks import chunks_path, read_pointer
from git_envhist.snapshots.layout import (
    DOTGIT,
    MANIFEST,
    PIECES,
    ROOTS,
    dotgit_directory,
    root_directory,
    shard_path,
    split_root,
    stored_below,
    stored_places,
    unflat,
)
from git_envhist.snapshots.manifest import read_shard
from git_envhist.snapshots.quoting import quote
from git_envhist.snapshots.stored_names import RESERVED, stored_name

# The bytes of single files as they were on disk: sealed files unsealed, chunks concatenated.

OpenSealed = Callable[[EnvPath, bytes], bytes]


class NoSuchFile(EnvhistError):
    """The snapshot stores no bytes for a path."""

    code = "no-such-path"
    usual_hint = "'git envlog show <rev>' shows its contents"
    exit_code = 4


class FileReader:
    """Reads files of one snapshot's tree."""

    def __init__(self, git: Git, tree: str, open_sealed: OpenSealed, pack_dir: str) -> None:
        self._reader = CatFile(git)
        self._chunks = ChunkReader(git, pack_dir, FORMATS[len(tree)], verify=Verify.ID)
        self._tree = tree
        self._length = len(tree) // 2
        self._lookup = TreeReader(self._reader, tree, self._length)
        self._open_sealed = open_sealed

    def read(self, path: EnvPath) -> Iterator[bytes]:
        """Yield the bytes of a file in blocks, or the target of a link."""
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
        """Return the manifest's entry for a path, or None."""
        places = stored_places(path)
        return next((entry for place in places if (entry := self._entry(*place, path)) is not None), None)

    def _blob_id(self, path: EnvPath) -> ObjectId | None:
        stored = [
            (directory + b"/" if directory else b"") + stored_name(name, top=not directory, link=link)
            for directory, name in stored_places(path)
            for link in (False, True)
        ]
        return next((oid for one in stored if (oid := self._lookup.look_up(one)) is not None), None)

    def _entry(self, directory: bytes, name: bytes, path: EnvPath) -> Entry | None:
        outer, inner = shard_path(directory)
        place = b"/".join((RESERVED, MANIFEST, outer.encode(), inner.encode()))
        oid = self._lookup.look_up(place)
        if oid is None:
            return None
        shard = read_shard(self._blob(oid.hex(), path))
        return next((entry for entry in shard.entries if entry.path.rpartition(b"/")[2] == name), None)

    def reserved(self, name: bytes) -> bytes | None:
        """Return the contents of a file below the reserved name, or None if it does not exist."""
        oid = self._lookup.look_up(RESERVED + b"/" + name)
        return self._blob(oid.hex(), EnvPath(name)) if oid is not None else None

    def close(self) -> None:
        self._reader.close()
        self._chunks.close()

    def _pieces(self, tree: bytes, path: EnvPath) -> Iterator[bytes]:
        outer, inner = chunks_path(tree)
        place = b"/".join((RESERVED, PIECES, outer.encode(), inner.encode()))
        if self._lookup.look_up(place) != tree:
            raise Damaged(f"the chunks of a file are not in the snapshot: '{display_bytes(path)}'")
        for _, _, run in self._listed(tree, path):
            for _, _, oid in self._listed(run, path):
                try:
                    yield self._chunks.blob(oid)
                except Damaged as error:
                    raise _missing_bytes(path) from error

    def _listed(self, tree: bytes, path: EnvPath) -> list[tuple[bytes, int, bytes]]:
        answer = self._reader.read(tree.hex())
        if answer is None or answer[0] != "tree":
            raise Damaged(
                f"chunks are missing of '{display_bytes(path)}'",
                hint=FSCK_HINT,
            )
        return decode_tree(answer[1], self._length)

    def _blob(self, oid: str, path: EnvPath) -> bytes:
        answer = self._reader.read(oid)
        if answer is None:
            raise _missing_bytes(path)
        if answer[0] != "blob":
            raise NoSuchFile(
                f"not a file in this snapshot: '{display_bytes(path)}'",
                hint="'git ls-tree <id>:<path>' lists a directory",
            )
        return answer[1]


def _missing_bytes(path: EnvPath) -> Damaged:
    return Damaged(f"bytes are missing of '{display_bytes(path)}'", hint=FSCK_HINT)


def _no_bytes(path: EnvPath, entry: Entry | None) -> NoSuchFile:
    if entry is None:
        return NoSuchFile(
            f"not in this snapshot: '{display_bytes(path)}'",
            hint="to list the snapshots that changed a path: git envlog -- <path>",
        )
    kind = "recorded by its hash only" if entry.stored is StoredAs.FINGERPRINT else _kind_of(entry)
    return NoSuchFile(f"no bytes are stored of '{display_bytes(path)}': it is {kind}")


def _kind_of(entry: Entry) -> str:
    return f"a {entry.kind.name.lower().replace('_', ' ')}"


GIT = b".git"
HINT = "no capture writes such a snapshot: restore another one, and check this one: git envlog fsck"
NESTED = RESERVED + b"/" + DOTGIT
ROOT = RESERVED + b"/" + ROOTS


class Objects(Protocol):
    """Reads objects by raw id: kind and bytes, verified. Raises `Damaged` if there is none."""

    def read(self, oid: bytes) -> tuple[bytes, bytes]: ...


class DirectoryPlace(NamedTuple):
    """The place of a directory: its stored path, its additional root, and its path in the environment."""

    stored: bytes
    root: bytes
    path: EnvPath


Tree = dict[bytes, tuple[int, bytes]]
"""Stored name -> git's mode and id."""


class SnapshotReader:
    """Read one snapshot lazily and validate everything read."""

    def __init__(self, objects: Objects, root: bytes | None, sibling: SnapshotReader | None = None) -> None:
        """`sibling`: the other snapshot of a comparison; objects in both are read and parsed once."""
        self.objects = objects
        self._root = root
        self.decoded: dict[bytes, Tree] = sibling.decoded if sibling is not None else {}
        self.shared: dict[bytes, bytes] = sibling.shared if sibling is not None else {}
        self._trees: dict[bytes, Tree] = {}
        self._oids: dict[bytes, bytes] = {}
        """Ids of the trees of directories, by stored path."""
        self._texts: dict[bytes, bytes] = {}
        self._shards: dict[bytes, Tree] = {}

    @property
    def environment(self) -> tuple[Tree, ...]:
        """Return everything that a comparison depends on."""
        return self.tree(b""), self.manifest, self.tree(NESTED), self.tree(ROOT)

    @once
    def manifest(self) -> Tree:
        return self._reserved_tree(MANIFEST)

    def shards_below(self, outer: bytes) -> Tree:
        """Return the shards with names that begin with these two digits."""
        if outer not in self._shards:
            mode, oid = self.manifest.get(outer, (0, b""))
            with damage_context(b"/".join((RESERVED, MANIFEST, outer))):
                self._shards[outer] = self._decode(oid) if mode == DIRECTORY else {}
        return self._shards[outer]

    def stored_at(self, outer: bytes, inner: bytes) -> bytes:
        """Return the stored path of the directory with a shard of this name."""
        text = self._blob(self.shards_below(outer)[inner])
        head = text[: text.find(b"\n") + 1]
        stored = _directory_of(head)
        if _shard_names(stored) != (outer, inner):
            raise damaged("a manifest shard is stored under the name of another directory's:", stored)
        self._texts[stored] = text
        return stored

    def has(self, stored: bytes) -> bool:
        """Return whether the manifest describes this directory."""
        outer, inner = _shard_names(stored)
        return inner in self.shards_below(outer)

    def text(self, stored: bytes) -> bytes:
        if stored not in self._texts:
            outer, inner = _shard_names(stored)
            item = self.shards_below(outer)[inner]
            text = self.shared.get(item[1]) if item[0] != DIRECTORY else None
            if text is None:
                with damage_context(stored):
                    text = self.shared[item[1]] = self._blob(item)
            self._texts[stored] = text
        return self._texts[stored]

    def tree(self, stored: bytes) -> Tree:
        """Return the entries of the tree at a stored path, none if it does not exist."""
        if stored not in self._trees:
            self._trees[stored] = self._read_tree(stored)
        return self._trees[stored]

    def forget(self, stored: bytes) -> None:
        """Release the tree and the shard of a directory without subdirectories; a later request reads them again.

        A directory with subdirectories keeps them: each subdirectory looks itself up in its parent.
        """
        tree = self._trees.get(stored, {})
        if not stored or any(mode == DIRECTORY for mode, _ in tree.values()):
            return
        oid = self._oids.pop(stored, None)
        if oid is not None:
            self.decoded.pop(oid, None)
        self._trees.pop(stored, None)
        if self._texts.pop(stored, None) is not None:
            outer, inner = _shard_names(stored)
            item = self.shards_below(outer).get(inner)
            if item is not None:
                self.shared.pop(item[1], None)

    def ids(self, stored: bytes) -> tuple[bytes, bytes]:
        """Return the ids of the shard and the tree of a directory other than the top; b"" if it has no tree."""
        outer, inner = _shard_names(stored)
        above, _, name = stored.rpartition(b"/")
        mode, oid = self._above(above).get(name, (0, b""))
        return self.shards_below(outer)[inner][1], oid if mode == DIRECTORY else b""

    def place(self, stored: bytes) -> DirectoryPlace:
        """Return the place of a directory in the environment."""
        root, path = split_root(stored)
        if root.startswith(NESTED + b"/"):
            parts = (self._nested(root), GIT, path)
            return DirectoryPlace(stored, b"", EnvPath(b"/".join([part for part in parts if part])))
        if root:
            name = unflat(root[len(ROOT) + 1 :])
            if not name or root_directory(name) != root:
                raise damaged("an additional root has an invalid name:", root)
            return DirectoryPlace(stored, name, path)
        if GIT in path.split(b"/"):
            raise damaged("a repository is stored among the files:", stored)
        return DirectoryPlace(stored, b"", path)

    def directories_with_links(self, groups: set[int]) -> set[bytes]:
        """Return every directory with an entry in one of these groups of hard links."""
        words = {b"%x" % group for group in groups}
        found = set()
        for text in self._all_texts():
            if b" l=" in text and not words.isdisjoint(_link_words(text)):
                found.add(read_shard(text).directory)
        return found

    def _all_texts(self) -> Iterator[bytes]:
        for outer in self.manifest:
            for item in self.shards_below(outer).values():
                yield self._blob(item)

    def _read_tree(self, stored: bytes) -> Tree:
        if not stored:
            with damage_context(stored):
                whole = self._decode(self._root) if self._root is not None else {}
            return {name: item for name, item in whole.items() if name != RESERVED}
        above, _, name = stored.rpartition(b"/")
        # Damage in a directory further up is reported for that directory.
        mode, oid = self._above(above).get(name, (0, b""))
        with damage_context(stored):
            if mode != DIRECTORY:
                return {}
            self._oids[stored] = oid
            return self._decode(oid)

    def _above(self, stored: bytes) -> Tree:
        if stored == RESERVED:
            return self._reserved
        return self.tree(stored)

    @once
    def _reserved(self) -> Tree:
        whole = self._decode(self._root) if self._root is not None else {}
        mode, oid = whole.get(RESERVED, (0, b""))
        return self._decode(oid) if mode == DIRECTORY else {}

    def _reserved_tree(self, name: bytes) -> Tree:
        mode, oid = self._reserved.get(name, (0, b""))
        with damage_context(RESERVED + b"/" + name):
            return self._decode(oid) if mode == DIRECTORY else {}

    def is_named(self, stored: bytes) -> bool:
        """Return whether the parent's manifest lists this directory; the top of a root needs no parent."""
        root, path = split_root(stored)
        if not path:
            if not root.startswith(NESTED + b"/"):
                return self.has(stored)
            nested = self._nested_or_none(root)
            return nested is not None and self._names(stored_below(b"", nested), GIT)
        above, _, name = path.rpartition(b"/")
        return self._names(stored_below(root, EnvPath(above)), name)

    def _names(self, stored: bytes, name: bytes) -> bool:
        return self.has(stored) and b"\n%b d " % quote(name) in self.text(stored)

    def _nested(self, root: bytes) -> EnvPath:
        found = self._nested_or_none(root)
        if found is None:
            raise damaged("no directory contains the nested repository at", root)
        return found

    def _nested_or_none(self, root: bytes) -> EnvPath | None:
        flat = root[len(NESTED) + 1 :]
        path = EnvPath(unflat(flat))
        if path and GIT not in path.split(b"/") and dotgit_directory(path) == root:
            return path
        return self._nested_by_digest.get(root)

    @once
    def _nested_by_digest(self) -> dict[bytes, EnvPath]:
        # A path too long for one component is stored as its digest, so all directories with a `.git` are tried.
        holders = [text for text in self._all_texts() if b"\n.git d " in text]
        paths = [split_root(read_shard(text).directory)[1] for text in holders]
        return {dotgit_directory(path): path for path in paths if path}

    def _decode(self, oid: bytes) -> Tree:
        if oid not in self.decoded:
            self.decoded[oid] = read_tree(self.objects, oid)
        return self.decoded[oid]

    def _blob(self, item: tuple[int, bytes]) -> bytes:
        mode, oid = item
        kind, data = self.objects.read(oid) if mode != DIRECTORY else (b"tree", b"")
        if kind != b"blob":
            raise Damaged("a shard of the manifest is not a file", hint=HINT)
        return data


def read_tree(objects: Objects, oid: bytes) -> Tree:
    """Return the entries of a tree, or of the tree of a commit."""
    return decode_by_name(tree_text(objects, oid), len(oid))


def tree_text(objects: Objects, oid: bytes) -> bytes:
    """Return the bytes of a tree, or of the tree of a commit."""
    kind, data = objects.read(oid)
    if kind == b"commit":
        kind, data = objects.read(bytes.fromhex(data[5 : data.find(b"\n")].decode("ascii")))
    if kind != b"tree":
        raise Damaged(f"object {oid.hex()} is not a tree", hint=HINT)
    return data


@lru_cache(64)
def _directory_of(head: bytes) -> bytes:
    """Return the stored path in a shard's first line.

    Cached, because both sides of a comparison mostly have the same line.
    """
    return read_shard(head + b". d 0000 0 u=0 g=0\n").directory


@lru_cache(256)
def _shard_names(stored: bytes) -> tuple[bytes, bytes]:
    outer, inner = shard_path(stored)
    return outer.encode("ascii"), inner.encode("ascii")


def _link_words(text: bytes) -> Iterable[bytes]:
    return (part.split(b" ", 1)[0].split(b"\n", 1)[0] for part in text.split(b" l=")[1:])


@contextmanager
def damage_context(stored: bytes) -> Iterator[None]:
    """Add the directory to errors about unreadable objects: an object id means nothing to a user."""
    try:
        yield
    except (Damaged, GitFailed) as error:
        text = f"the data of the directory '{display_bytes(stored) or '.'}' cannot be read: {error.message}"
        raise Damaged(text, hint=HINT) from error


def damaged(text: str, path: bytes) -> Damaged:
    """Return the error for a snapshot that no capture writes."""
    return Damaged(f"{text} '{display_bytes(path)}'", hint=HINT)


# Find the damaged path after a comparison failed: git reports only an object's id.

SHARDS = RESERVED + b"/" + MANIFEST + b"/"
UNREADABLE_HINT = "compare with another snapshot, and check this one: git envlog fsck"
LENGTHS = (40, 64)
MAX_DIRECTORIES = 500_000
"""Trees that contain each other repeatedly can represent any number of paths."""


def with_damaged_path(git: Git, snapshots: tuple[str, ...], error: EnvhistError) -> EnvhistError:
    """Return the error with the path that cannot be read, if it is in one of these snapshots (commits or trees)."""
    for snapshot in snapshots:
        if len(snapshot) in LENGTHS:
            with CatFile(git) as reader:
                path = _first_unreadable(reader, snapshot)
            if path is not None:
                text = f"the data of '{display_bytes(path) or '.'}' cannot be read: {error.message}"
                return Damaged(text, hint=UNREADABLE_HINT)
    return error


def _first_unreadable(reader: CatFile, snapshot: str) -> bytes | None:
    later: list[tuple[bytes, str, bool]] = []
    directories: list[bytes] = []
    waiting = [(b"", f"{snapshot}^{{tree}}", True)]
    while (waiting or later) and len(directories) < MAX_DIRECTORIES:
        # Shards come last: by then all directories that they may describe are known.
        path, name, is_tree = (waiting or later).pop()
        try:
            answer = reader.read(name)
            if answer is None:
                raise Damaged("it is missing")
            found = decode_tree(answer.data, len(snapshot) // 2, gitlinks=True) if is_tree else []
        except (Damaged, GitFailed):
            return _described(path, directories)
        directories += [path] if is_tree else []
        for entry, mode, oid in found:
            below = path + b"/" + entry if path else entry
            is_shard = below.startswith(SHARDS)
            if mode == DIRECTORY or is_shard:
                (later if is_shard else waiting).append((below, oid.hex(), mode == DIRECTORY))
    return None


def _described(path: bytes, directories: list[bytes]) -> bytes:
    """Return the directory that a shard describes; any other path is returned unchanged."""
    if path.startswith(SHARDS):
        names = path.removeprefix(SHARDS)
        for directory in directories:
            if "/".join(shard_path(directory)).encode("ascii") == names:
                return directory
    return path
