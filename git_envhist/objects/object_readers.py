"""Read objects: from the packs of captures in this process, otherwise through git.

Each caller says how objects from our packs are verified (`Verify`).

- `ObjectReader` for restores. It reads packs in order and in large blocks: 33 µs per file of 20 KiB, 30 of them for
  inflating and hashing (measured by tests/restore/measure.py).
- `PackFirstReader` for comparisons, with the interface of `CatFile`. It reads packs in small windows: 450 trees and
  shards take 7 ms, in `git cat-file` 12.
- `ChunkReader` for the chunks of big files. Those in packs of git are read by dulwich, because asking git for
  thousands of objects through a pipe takes longer.

Packs are read by `pread`, never mapped: a truncated pack is then an error and not a signal. Deltas and damaged
entries are left to `PackFile`. A reader must be opened in the process that uses it, because a forked child shares the
pipe to git with its parent.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from git_envhist.errors import FSCK_HINT, Damaged
from git_envhist.git.cat_file import CatFile, GitObject
from git_envhist.git.process import Git
from git_envhist.lazy import once
from git_envhist.model import Entry, EnvPath, ObjectId
from git_envhist.objects.deflate import InflateError, crc32, decompress, decompressobj
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_file import KINDS, PackFile
from git_envhist.objects.trees import decode_tree, object_id
from git_envhist.platform import open_file_only

if TYPE_CHECKING:
    from dulwich.object_store import DiskObjectStore


WINDOW = 1 << 13
"""Most trees and shards fit into one read of this size."""
WIDE, HALVED = 1 << 16, 2
"""A larger entry is read again with this fraction of its size, which is enough to inflate a text at once."""
BLOCK = 1 << 17
"""The blocks of a pack begin at multiples of this."""
OVERLAP = 1 << 14
"""Number of bytes read after the end of a block. Most objects that begin in the block end within them."""
MAX_BLOCKS = 24
"""Maximum number of blocks of a pack in memory.

The files of a directory are adjacent in a pack; its manifest is stored elsewhere.
"""
MAX_SIZE = 1 << 26
"""A larger size may be false; `PackFile` reads such an entry with checks."""
SLACK = 256
"""Bytes of code tables that deflate may add to incompressible data, besides a fraction of its size."""
LIST_AFTER_READS = 1 << 10
"""After this number of reads from a pack (or a sixteenth of its objects), all its offsets are loaded."""
WHOLE_SNAPSHOT_FACTOR = 4
"""The number is smaller by this factor if a whole snapshot is read."""
MAX_LISTED = 1 << 19
"""The limit of offsets loaded by a process, at 150 bytes each."""
ONE_SHOT_LIMIT = 1 << 18
"""Smaller objects are inflated by one call, which is faster than a stream.

Their size may be false, but deflate expands by a limited factor.
"""
DEFLATED, FRAME = 0x78, 2
"""The first byte and the length of the zlib header in git's streams."""
CHECKSUM = 4
"""The length of the zlib trailer."""
RAW_DEFLATE = -15
"""Inflate without zlib's checksum, because the id or the checksum of the whole entry is verified."""
BLOB = 3
"""The type code of a blob in a pack."""
NO_OFFSET = 0
"""No object begins at the start of a pack."""


class Verify(Enum):
    """The check of an object that is read from our packs."""

    ID = "id"
    """Compute its id. The only check for a snapshot that another person may have written."""
    PACKED = "packed"
    """Compare a blob's packed bytes with the checksum in the pack's index, which avoids hashing the content.

    Only for a whole snapshot that one of your keys signed (decision 38). Where this is not possible, compute the id.
    """
    DEFLATE = "deflate"
    """Verify the checksum of the deflated bytes only, as git does. Only for what is displayed."""


class PackReader:
    """Read objects from our packs.

    With `Verify.DEFLATE` objects are read at random places in small windows, otherwise in order and in large blocks.
    """

    def __init__(self, own: OwnPacks, object_format: str, *, verify: Verify) -> None:
        self._own = own
        self._new = getattr(hashlib, object_format)
        self._verify = verify
        self._open: list[_Cursor] | None = None

    def packed(self, oid: bytes) -> bytes | None:
        """Return a blob verified by its pack's checksum; None if that is not wanted, or cannot be verified.

        This avoids hashing the content, which takes a third of the time of inflating it.
        """
        found = self._find(oid) if self._verify is Verify.PACKED else None
        return None if found is None else found[0].packed(found[1])

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """Return the type and content of an object; KeyError if no pack has it, Damaged if all copies are damaged."""
        found = self._find(oid)
        answer = None if found is None else found[0].read(found[1])
        if answer is not None:
            if self._verify is Verify.DEFLATE:
                return answer
            # A named constructor is twice as fast as hashlib.new.
            digest = self._new(b"%b %d\0" % (answer[0], len(answer[1])), usedforsecurity=False)
            digest.update(answer[1])
            if digest.digest() == oid:
                return answer
        return self._own.read(oid)

    def close(self) -> None:
        for pack in self._open or ():
            pack.close()
        self._open = None
        self._own.close()

    def _find(self, oid: bytes) -> tuple[_Cursor, int] | None:
        """Return the cursor of a pack that has an object, and the object's place there."""
        packs = self._open if self._open is not None else self._open_all()
        for number, pack in enumerate(packs):
            place = pack.find(oid)
            if place is not None:
                if number:
                    # The next object is most likely in the same pack.
                    packs.insert(0, packs.pop(number))
                return pack, place
        return None

    def _open_all(self) -> list[_Cursor]:
        # The largest pack most likely contains the object.
        packs = sorted(self._own.packs, key=lambda pack: -pack.index.count)
        if self._verify is Verify.DEFLATE:
            self._open = [_WindowCursor(pack) for pack in packs]
            return self._open
        listed = accumulate(pack.index.count for pack in packs)
        reads_most = self._verify is Verify.PACKED
        self._open = [
            _BlockCursor(pack, count <= MAX_LISTED, reads_most)
            for pack, count in zip(packs, listed, strict=True)
        ]
        return self._open


class _Cursor(ABC):
    """A pack that is opened at the first read."""

    find: Callable[[bytes], int | None]
    """Returns the place of an object; None if the pack does not have it."""

    def __init__(self, pack: PackFile) -> None:
        self._path = pack.path
        self._file = -1

    @abstractmethod
    def read(self, place: int) -> tuple[bytes, bytes] | None:
        """Return the type and content of an object, not verified by its id; None if `PackFile` must read it."""

    def packed(self, place: int) -> bytes | None:
        """Return a blob if its entry has the index's checksum; None if not, or if the checksum is not known."""
        return None

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _opened(self) -> int:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._file


class _WindowCursor(_Cursor):
    """Read small objects at random places; a place is a number in the index."""

    def __init__(self, pack: PackFile) -> None:
        super().__init__(pack)
        self.find = pack.index.find
        self._offset = pack.index.offset

    def read(self, number: int) -> tuple[bytes, bytes] | None:
        """Return the type and content of an object; None if `PackFile` must read it."""
        try:
            offset = self._offset(number)
            window = os.pread(self._opened(), WINDOW, offset)
            byte, at, shift = window[0], 1, 4
            code, size = byte >> 4 & 7, byte & 15
            while byte & 0x80:
                byte = window[at]
                size |= (byte & 0x7F) << shift
                at += 1
                shift += 7
            kind = KINDS.get(code)
            if kind is None or size > MAX_SIZE:
                return None
            asked = WINDOW
            if size > WIDE:
                asked = size // HALVED
                window = os.pread(self._file, asked, offset)
            inflater = decompressobj()
            data = inflater.decompress(window[at:], size + 1)
            if not inflater.eof and len(window) == asked:
                # Incompressible bytes may take nine bits each.
                rest = os.pread(self._file, size + (size >> 3) + SLACK, offset + asked)
                data += inflater.decompress(inflater.unconsumed_tail + rest, size + 1 - len(data))
        except (OSError, IndexError, Damaged):
            return None
        except InflateError:
            return None
        return (kind, data) if inflater.eof and len(data) == size else None


class _BlockCursor(_Cursor):
    """Read objects in order; a place is an offset in the pack."""

    def __init__(self, pack: PackFile, may_list: bool, reads_most: bool) -> None:
        """`reads_most` is set if a whole snapshot will be read."""
        super().__init__(pack)
        self.find = self._look_up
        self._index = pack.index
        self._blocks: dict[int, memoryview] = {}
        self._ends: dict[int, int] = {}
        self._checksums: dict[int, int] = {}
        """The ends and the checksums of entries by their offsets, loaded at first use."""
        self._is_listed = False
        worth = max(LIST_AFTER_READS, pack.index.count // 16) // (WHOLE_SNAPSHOT_FACTOR if reads_most else 1)
        self._until_listed = max(1, worth) if may_list else 0

    def packed(self, offset: int) -> bytes | None:
        """Return a blob if its entry has the index's checksum; None if not, or if the checksum is not known."""
        start = offset & -BLOCK
        try:
            if self._is_listed and not self._ends:
                self._learn_ends()
            end = self._ends.get(offset)
            if not end or end - offset > MAX_SIZE:
                return None
            entry = (self._blocks.get(start) or self._read_block(start))[offset - start : end - start]
            if len(entry) < end - offset:
                entry = memoryview(os.pread(self._file, end - offset, offset))
            if crc32(entry) != self._checksums[offset]:
                return None
            byte, at = entry[0], 0
            code, size = byte >> 4 & 7, byte & 15
            if byte & 0x80:
                size, at = _rest_of_size(entry, at, size)
            if code != BLOB or size > MAX_SIZE or entry[at + 1] != DEFLATED:
                return None
            data = decompress(entry[at + 1 + FRAME : -CHECKSUM], RAW_DEFLATE, size + 1)
        except (OSError, IndexError):
            return None
        except InflateError:
            return None
        return data if len(data) == size else None

    def read(self, offset: int) -> tuple[bytes, bytes] | None:
        """Return the type and content of an object, not verified; None if `PackFile` must read it."""
        start = offset & -BLOCK
        try:
            view = self._blocks.get(start) or self._read_block(start)
            at = offset - start
            byte = view[at]
            code, size = byte >> 4 & 7, byte & 15
            if byte & 0x80:
                size, at = _rest_of_size(view, at, size)
            kind = KINDS.get(code)
            if kind is None or size > MAX_SIZE:
                return None
            at += 1
            # Incompressible bytes may take nine bits each.
            limit = size + (size >> 3) + SLACK
            if view[at] != DEFLATED:
                return None
            if size < ONE_SHOT_LIMIT and at + limit <= len(view):
                data = decompress(view[at + FRAME : at + limit], RAW_DEFLATE, size + 1)
                return (kind, data) if len(data) == size else None
            inflater = decompressobj(RAW_DEFLATE)
            data = inflater.decompress(view[at + FRAME : at + limit], size + 1)
            if not inflater.eof and at + limit > len(view):
                data += self._inflate_more(inflater, start, at + limit - len(view), size + 1 - len(data))
        except (OSError, IndexError):
            return None
        except InflateError:
            return None
        return (kind, data) if inflater.eof and len(data) == size else None

    def close(self) -> None:
        self._blocks.clear()
        super().close()

    def _inflate_more(self, inflater: Any, start: int, limit: int, missing: int) -> bytes:
        """Inflate the following blocks, up to `limit` bytes."""
        parts = []
        while limit > 0 and missing > 0 and not inflater.eof:
            start += BLOCK
            view = (self._blocks.get(start) or self._read_block(start))[OVERLAP : OVERLAP + limit]
            if not view:
                break
            parts.append(inflater.decompress(view, missing))
            missing -= len(parts[-1])
            limit -= len(view)
        return b"".join(parts)

    def _look_up(self, oid: bytes) -> int | None:
        """Return the offset of an object from the index; None if the pack does not have it."""
        number = self._index.find(oid)
        if number is None:
            return None
        self._until_listed -= 1
        if not self._until_listed:
            self.find = self._list().get
        return self._offset(number)

    def _list(self) -> dict[bytes, int]:
        self._is_listed = True
        return dict(zip(self._index.names(), self._offsets(), strict=True))

    def _learn_ends(self) -> None:
        self._ends = {NO_OFFSET: NO_OFFSET}
        # Only the index maps ids to bytes here. A changed bit in it could lead to another undamaged object, so its
        # own hash is verified, and that it is the index of this pack.
        if not self._index.is_whole() or not self._is_of_this_pack():
            return
        offsets = self._offsets()
        # The end of the last entry is not in the index, so `PackFile` reads that one.
        self._ends = {**dict(pairwise(sorted(offsets))), NO_OFFSET: NO_OFFSET}
        self._checksums = dict(zip(offsets, self._index.checksums(), strict=True))

    def _is_of_this_pack(self) -> bool:
        """Return whether the pack ends with the hash that its index names."""
        wanted = self._index.pack_hash
        end = os.fstat(self._opened()).st_size
        return end > len(wanted) and os.pread(self._file, len(wanted), end - len(wanted)) == wanted

    def _offsets(self) -> list[int]:
        try:
            return self._index.offsets()
        except Damaged:
            return [*map(self._offset, range(self._index.count))]

    def _offset(self, number: int) -> int:
        try:
            return self._index.offset(number)
        except Damaged:
            return NO_OFFSET

    def _read_block(self, start: int) -> memoryview:
        if len(self._blocks) >= MAX_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        found = self._blocks[start] = memoryview(os.pread(self._opened(), BLOCK + OVERLAP, start))
        return found


def _rest_of_size(data: memoryview, at: int, size: int) -> tuple[int, int]:
    """Return the size of an entry's object, and the position of the last byte of its size field."""
    shift, byte = 4, 0x80
    while byte & 0x80:
        at += 1
        byte = data[at]
        size |= (byte & 0x7F) << shift
        shift += 7
    return size, at


# Objects by git's names, for a comparison: starting a git takes 2 ms, and each object takes it longer.

FORMATS = {40: "sha1", 64: "sha256"}
TREE = "^{tree}"


class PackFirstReader:
    """Read objects by any name that `CatFile` accepts: from our packs, else through `CatFile`."""

    def __init__(self, git: Git, others: CatFile, like: str) -> None:
        """`like` is an id, as long as all ids of the repository."""
        self._others = others
        object_format = FORMATS.get(len(like), "sha1")
        self._own = PackReader(_packs(git, object_format), object_format, verify=Verify.DEFLATE)
        self._trees: dict[str, TreeReader] = {}

    def read_own(self, oid: bytes) -> tuple[bytes, bytes]:
        """Return the type and content of an object.

        Raise KeyError if our packs do not have it, Damaged if all copies are damaged.
        """
        return self._own.read(oid)

    def root_tree(self, name: str) -> bytes:
        """Return the content of the tree of a commit or tree, given by its full id; KeyError if it is not ours."""
        kind, data = self._own.read(_raw(name))
        if kind == b"commit" and data.startswith(b"tree "):
            kind, data = self._own.read(_raw(data[5 : data.find(b"\n")].decode("ascii", "replace")))
        if kind != b"tree":
            raise KeyError(name)
        return data

    def read(self, name: str | bytes) -> GitObject | None:
        """Return an object by name; None if it does not exist."""
        try:
            kind, data = self._find(os.fsdecode(name))
        except (KeyError, Damaged):
            return self._others.read(name)
        return GitObject(kind.decode("ascii"), data)

    def read_many(self, names: Iterable[str | bytes]) -> Iterator[GitObject | None]:
        """Return an iterator over the objects of these names, in order."""
        return map(self.read, names)

    def close(self) -> None:
        self._own.close()

    def _find(self, name: str) -> tuple[bytes, bytes]:
        start, colon, path = name.partition(":")
        if colon:
            return self._own.read(self._look_up(start, os.fsencode(path)))
        if name.endswith(TREE):
            return b"tree", self.root_tree(name.removesuffix(TREE))
        return self._own.read(_raw(name))

    def _look_up(self, start: str, path: bytes) -> bytes:
        tree = self._trees.get(start)
        if tree is None:
            tree = self._trees[start] = TreeReader(self, start, len(_raw(start)))
        oid = tree.look_up(path)
        if oid is None:
            raise KeyError(path)
        return oid


class TreeReader:
    """Look up stored paths in one tree (given by any name); each directory is read once."""

    def __init__(self, reader: CatFile | PackFirstReader, tree_ish: str, id_length: int) -> None:
        self._reader = reader
        self._tree_ish = tree_ish
        self._id_length = id_length
        self._directories: dict[bytes, dict[bytes, bytes]] = {}

    def look_up(self, path: bytes) -> ObjectId | None:
        """Return the object at a path, or None."""
        directory, _, name = path.rpartition(b"/")
        oid = self._entries(directory).get(name)
        return None if oid is None else ObjectId(oid)

    def _entries(self, directory: bytes) -> dict[bytes, bytes]:
        known = self._directories.get(directory)
        if known is None:
            known = self._directories[directory] = self._read(directory)
        return known

    def _read(self, directory: bytes) -> dict[bytes, bytes]:
        if directory:
            oid = self.look_up(directory)
            answer = self._reader.read(oid.hex()) if oid is not None else None
        else:
            answer = self._reader.read(self._tree_ish + "^{tree}")
        if answer is None or answer[0] != "tree":
            return {}
        return {name: oid for name, _, oid in decode_tree(answer[1], self._id_length, gitlinks=True)}


def _packs(git: Git, object_format: str) -> OwnPacks:
    place = os.path.join(_common_dir(git.git_dir), "objects", "pack")
    try:
        return OwnPacks.open(place, object_format)
    except OSError:
        return OwnPacks(place, object_format, [])


def _raw(name: str) -> bytes:
    """Return the raw bytes of a full id; KeyError for any other name."""
    try:
        oid = bytes.fromhex(name)
    except ValueError:
        raise KeyError(name) from None
    if 2 * len(oid) != len(name) or len(name) not in FORMATS:
        raise KeyError(name)
    return oid


def _common_dir(git_dir: str) -> str:
    """Return the directory with the objects; the file `commondir` names it in a linked worktree."""
    try:
        with open(os.path.join(git_dir, "commondir"), "rb", opener=open_file_only) as file:
            return os.path.join(git_dir, os.fsdecode(file.read().removesuffix(b"\n")))
    except OSError:
        return git_dir


# Objects of snapshots, for a restore.

OpenSealed = Callable[[EnvPath, bytes], bytes]


class ObjectReader:
    """Read objects by their raw ids, verified."""

    lends: bool = False
    """True if `lend` can return True."""

    def __init__(
        self,
        git: Git,
        pack_dir: str,
        object_format: str,
        open_sealed: OpenSealed | None = None,
        *,
        verify: Verify,
        made: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """`made` are blobs by id that are not stored in the repository."""
        self._made = {} if made is None else made
        self._git = git
        self._pack_dir = pack_dir
        self._format = object_format
        self._open_sealed = open_sealed
        if verify is Verify.DEFLATE:
            raise ValueError("what is restored is verified")
        self._verify = verify

    @once
    def _own(self) -> PackReader:
        return PackReader(OwnPacks.open(self._pack_dir, self._format), self._format, verify=self._verify)

    @once
    def _child(self) -> CatFile:
        return CatFile(self._git)

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """Return the type and content of an object; raise Damaged if no undamaged copy exists."""
        if oid in self._made:
            return b"blob", self._made[oid]
        try:
            return self._own.read(oid)
        except (KeyError, Damaged):
            return self._ask_git(oid)

    def blob(self, oid: bytes) -> bytes:
        """Return the content of a blob."""
        if self._verify is Verify.PACKED and (packed := self._own.packed(oid)) is not None:
            return packed
        kind, data = self.read(oid)
        if kind != b"blob":
            raise Damaged(f"object {oid.hex()} is not a blob", hint=FSCK_HINT)
        return data

    def plain(self, entry: Entry) -> bytes:
        """Return the content of an entry's blob in the tree."""
        assert entry.oid is not None
        return self.blob(entry.oid)

    def open_sealed(self, path: EnvPath, blob: bytes) -> bytes:
        """Return the content of a sealed file; raise SealingError if the key is missing."""
        if self._open_sealed is None:
            raise Damaged("sealed files cannot be opened here")
        return self._open_sealed(path, blob)

    def lend(self, entry: Entry, take: Callable[[int, bool], bool]) -> bool:
        """Pass an open file that should have the bytes of an entry to `take`; return whether `take` used it.

        The second argument of `take` is true if the file is useful only when both can share their blocks.
        """
        return False

    def close(self) -> None:
        for name in ("_own", "_child"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

    def list_children(self, tree: bytes) -> list[bytes]:
        """Return the ids of a tree's entries, in order; raise Damaged if it is not a tree or cannot be read."""
        kind, data = self.read(tree)
        if kind != b"tree":
            raise Damaged(f"object {tree.hex()} is not a tree", hint=FSCK_HINT)
        return [oid for _, _, oid in decode_tree(data, len(tree))]

    def _ask_git(self, oid: bytes) -> tuple[bytes, bytes]:
        answer = self._child.read(oid.hex())
        if answer is None:
            raise Damaged(f"an object is missing: {oid.hex()}", hint=FSCK_HINT)
        kind = answer.kind.encode("ascii")
        if object_id(kind, answer.data, self._format) != oid:
            raise Damaged(f"object {oid.hex()} does not match its id", hint=FSCK_HINT)
        return kind, answer.data


class ChunkReader(ObjectReader):
    """Read the chunks of big files, verified by their ids."""

    _store: DiskObjectStore | None = None

    def close(self) -> None:
        super().close()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _ask_git(self, oid: bytes) -> tuple[bytes, bytes]:
        from dulwich.object_store import DiskObjectStore  # loaded late: few chunks are elsewhere
        from dulwich.objects import ObjectID  # loaded late: few chunks are elsewhere

        name = ObjectID(oid.hex().encode("ascii"))
        try:
            if self._store is None:
                self._store = DiskObjectStore(os.path.dirname(self._pack_dir))
            # Not `get_raw` of the store: it inflates a loose object without a limit.
            number, data = next(pack for pack in self._store.packs if name in pack).get_raw(name)
            is_intact = object_id(KINDS[number], data, self._format) == oid
        except Exception:
            # git reads what dulwich cannot (SHA-256, loose and promised objects), or reports the error.
            is_intact = False
        return (KINDS[number], data) if is_intact else super()._ask_git(oid)
