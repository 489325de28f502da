"""The layout of a snapshot's tree (pure).

The environment's own entries are at the top of the tree. Everything else is below the reserved name `.envhist`: the
manifest, facts, lists, chunks of big files, and two directories that contain entries again: `dotgit` (the `.git` of
nested repositories) and `roots` (additional roots). Each of those is a separate root: paths in it are relative to its
own top. This module converts between paths of the environment and stored paths, and writes trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.lazy import pattern
from git_envhist.model import EnvPath, ObjectId
from git_envhist.objects.trees import decode_tree, encode_tree
from git_envhist.printable_text import display_bytes
from git_envhist.snapshots.stored_names import (
    RESERVED,
    may_need_escape,
    must_escape,
    stored_name,
    stored_path,
    true_name,
    true_path,
)

# Names directly below RESERVED.
MANIFEST = b"manifest"
MISSING = b"missing"
UNSTABLE = b"unstable"
FACTS = b"facts"
STAGED = b"staged"
PIECES = b"pieces"
ROOTS = b"roots"
DOTGIT = b"dotgit"
ATTACHMENTS = b"attachments"
GIT_CHANGED = b"git-changed"
RULES = b"rules"
SERVICES = b"services"

MAX_FLAT = 200
_FLAT = pattern(rb"(?!\.\.?\Z)[^/\\\0]+\Z")
_DIGEST = pattern(rb"[0-9a-f]{40}\Z")
_FLAT_ESCAPE = pattern(rb"%([0-9a-f]{2})")


def dotgit_directory(path: EnvPath) -> bytes:
    """Return the stored directory of the `.git` of a nested repository."""
    return b"/".join((RESERVED, DOTGIT, _flat(path)))


def root_directory(name: bytes) -> bytes:
    """Return the stored directory of an additional root."""
    return b"/".join((RESERVED, ROOTS, _flat(name)))


def stored_below(root: bytes, path: EnvPath) -> bytes:
    """Return the stored path of a directory. `root` is b"" or the result of `dotgit_directory` or `root_directory`."""
    if not root:
        return stored_path(path)
    return b"/".join([root, *[stored_name(name) for name in path.split(b"/") if name]])


@lru_cache(256)
def split_root(stored_directory: bytes) -> tuple[bytes, EnvPath]:
    """Split a stored directory into its root and the true path below that root."""
    names = stored_directory.split(b"/")
    # Most directories are stored under their true name, which is quick to check.
    if (
        all(names)
        and b"\0" not in stored_directory
        and not may_need_escape(stored_directory.replace(b"/", b"\0"))
    ):
        return b"", EnvPath(stored_directory)
    if names[0] != RESERVED:
        root, path = b"", true_path(stored_directory)
    elif len(names) > 2 and names[1] in (DOTGIT, ROOTS) and _FLAT.match(names[2]):
        root, path = b"/".join(names[:3]), EnvPath(b"/".join([true_name(name) for name in names[3:]]))
    else:
        raise Damaged(f"no entries are stored in '{display_bytes(stored_directory)}'")
    if stored_below(root, path) != stored_directory:
        raise Damaged(f"a directory is not spelled as names are stored: '{display_bytes(stored_directory)}'")
    return root, path


def stored_places(path: EnvPath) -> tuple[tuple[bytes, bytes], ...]:
    """Return where the tree may store a user's path, as (directory, true name), most likely first."""
    root, mark, below_root = path.partition(b"://")
    nested, inside, below_git = path.partition(b"/.git/")
    if mark and root:
        candidates = [(root_directory(root), below_root)]
    elif inside and nested:
        # A path below `.git` may also belong to an ordinary directory that is only called `.git`.
        candidates = [(dotgit_directory(EnvPath(nested)), below_git), (b"", path)]
    else:
        candidates = [(b"", path)]
    return tuple(_place_in(root, below) for root, below in candidates if is_path(below))


def _place_in(root: bytes, below: bytes) -> tuple[bytes, bytes]:
    directory, _, name = below.rpartition(b"/")
    return stored_below(root, EnvPath(directory)) if directory else root, name


def is_path(path: bytes) -> bool:
    """Return whether a path is relative and has no empty, `.` or `..` component."""
    return not {b"", b".", b".."}.intersection(path.split(b"/"))


def _flat(path: bytes) -> bytes:
    # Encode a whole path as one component: a path that is a prefix of another must not become its directory.
    flat = path.replace(b"%", b"%25").replace(b"/", b"%2f").replace(b"\\", b"%5c")
    if not flat:
        raise ValueError("empty path: the top is not a nested repository, and a root has a name")
    if len(flat) > MAX_FLAT:
        import hashlib  # loaded late: a list of paths hashes nothing

        return hashlib.sha256(path).hexdigest()[:40].encode("ascii")
    # A path that looks like a digest must not collide with a longer one.
    if flat in (b".", b"..") or must_escape(flat) or _DIGEST.match(flat):
        return b"%%%02x" % flat[0] + flat[1:]
    return flat


def unflat(flat: bytes) -> bytes:
    """Return the path, or the name of a root, that one component of a stored path encodes."""
    return _FLAT_ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), flat)


def shard_path(stored_directory: bytes) -> tuple[str, str]:
    """Return the two names of a directory's shard, below the manifest's directory."""
    import hashlib  # loaded late: a list of paths hashes nothing

    digest = hashlib.sha256(stored_directory).hexdigest()
    return digest[:2], digest[2:40]


DIRECTORY = 0o040000
FILE = 0o100644
EXECUTABLE = 0o100755
LINK = 0o120000
TYPE = 0o170000

TreeEntry = tuple[bytes, int, bytes]


class ObjectSink(Protocol):
    """Stores objects; storing one that exists already costs nothing."""

    def add(self, kind: bytes, data: bytes) -> ObjectId: ...


def git_mode(mode: int) -> int:
    """Return the tree mode of a file or link."""
    if mode & TYPE == LINK:
        return LINK
    return EXECUTABLE if mode & 0o100 else FILE


def leaf_entries(
    names: list[bytes], modes: Iterable[int], ids: Iterable[bytes], *, top: bool
) -> list[TreeEntry]:
    """Return the tree entries of a directory's files and links. Those without an id are only in the manifest."""
    git_modes = list(map(git_mode, modes))
    stored = names
    if may_need_escape(b"\0".join(names)):
        pairs = zip(names, git_modes, strict=True)
        stored = [stored_name(name, top=top, link=mode == LINK) for name, mode in pairs]
    return [entry for entry in zip(stored, git_modes, ids, strict=True) if any(entry[2])]


def write_tree(sink: ObjectSink, entries: Iterable[TreeEntry]) -> bytes | None:
    """Store a tree. Return None if it is empty: a tree has no entry for an empty tree."""
    listed = list(entries)
    return sink.add(b"tree", encode_tree(listed)) if listed else None


def write_nested(sink: ObjectSink, blobs: Mapping[bytes, TreeEntry]) -> bytes | None:
    """Store entries given by paths of one or more components, as nested trees."""
    entries: list[TreeEntry] = []
    below: dict[bytes, dict[bytes, TreeEntry]] = {}
    for path, entry in blobs.items():
        first, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(first, {})[rest] = entry
        else:
            entries.append((first, entry[1], entry[2]))
    for name, inner in below.items():
        oid = write_nested(sink, inner)
        if oid is not None:
            entries.append((name, DIRECTORY, oid))
    return write_tree(sink, entries)


class ManifestTree:
    """The manifest as a tree of shards. Reads and writes only the part around a changed shard."""

    def __init__(
        self, sink: ObjectSink, read: Callable[[bytes], bytes], root: bytes | None, width: int
    ) -> None:
        self._sink = sink
        self._read = read
        self._width = width
        self._root = self._entries(root)
        self._touched: dict[bytes, dict[bytes, bytes]] = {}

    def put(self, stored_directory: bytes, shard: bytes | None) -> None:
        """Set the shard of a directory; None removes it."""
        outer, inner = (name.encode("ascii") for name in shard_path(stored_directory))
        if outer not in self._touched:
            self._touched[outer] = self._entries(self._root.get(outer))
        if shard is None:
            self._touched[outer].pop(inner, None)
        else:
            self._touched[outer][inner] = shard

    def write(self) -> bytes | None:
        """Store what changed. Return the id of the manifest, or None if it is empty."""
        for outer, inner in self._touched.items():
            oid = write_tree(self._sink, [(name, FILE, shard) for name, shard in inner.items()])
            if oid is None:
                self._root.pop(outer, None)
            else:
                self._root[outer] = oid
        self._touched = {}
        return write_tree(self._sink, [(name, DIRECTORY, oid) for name, oid in self._root.items()])

    def _entries(self, tree: bytes | None) -> dict[bytes, bytes]:
        if tree is None:
            return {}
        return {name: oid for name, _, oid in decode_tree(self._read(tree), self._width)}


def chunk_entries(trees: Iterable[bytes]) -> dict[bytes, TreeEntry]:
    """Return the tree entries of the chunk trees of big files, each under its own id."""
    found = {}
    for tree in trees:
        name = tree.hex().encode("ascii")
        path = PIECES + b"/" + name[:2] + b"/" + name[2:]
        found[path] = (b"", DIRECTORY, tree)
    return found


def write_whole_tree(
    sink: ObjectSink, top: Iterable[TreeEntry], manifest: bytes | None, reserved: Mapping[bytes, TreeEntry]
) -> bytes:
    """Store the snapshot's top tree: the environment's own entries, and the reserved name with everything else."""
    inside = dict(reserved)
    if manifest is not None:
        inside[MANIFEST] = (b"", DIRECTORY, manifest)
    oid = write_nested(sink, inside)
    entries = [*top]
    if oid is not None:
        entries.append((RESERVED, DIRECTORY, oid))
    return sink.add(b"tree", encode_tree(entries))
