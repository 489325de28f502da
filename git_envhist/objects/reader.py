"""Reads many objects of our own packs one after another, as a restore does: most lie beside the last one.

A hot path: the bytes of 100,000 files, 20 KiB each, take 33 µs a file, of which 30 go into inflating and hashing
(tests/restore/measure.py measures restores). Read by `pread`, never mapped: a pack that was cut short is then an error
to report. Whatever is not plain (a delta, damage) is left to the pack's own reader.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile, GitObject
from git_envhist.git.process import Git
from git_envhist.lazy import once
from git_envhist.model import Entry, EnvPath
from git_envhist.objects.compress import InflateError, crc32, decompress, decompressobj
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_reader import KINDS, PackFile
from git_envhist.objects.trees import DIRECTORY, decode_by_name, decode_tree, object_id
from git_envhist.platform import open_file_only

if TYPE_CHECKING:
    from dulwich.object_store import DiskObjectStore


# Many objects in one go, read in this process; git's own reader answers where that cannot.
#
# The pieces of one big file are thousands of blobs: a pipe to git and back for each of them costs more than the bytes.
# dulwich reads packs and loose objects in place. What it does not know (an object format other than SHA-1, a partial
# clone, an object that came meanwhile) is asked of git.

SHA1_HEX = 40
BULK_BLOB_TYPE = 3


class BulkReader:
    """Reads blobs by their ids, in the order asked for."""

    def __init__(self, git: Git, objects_dir: str) -> None:
        self._objects_dir = objects_dir
        self._fallback = CatFile(git)
        self._store: DiskObjectStore | None = None

    def read(self, ids: Iterable[str]) -> Iterator[bytes | None]:
        """The bytes of each blob; None for what is missing."""
        for oid in ids:
            data = self._read_here(oid) if len(oid) == SHA1_HEX else None
            if data is None:
                answer = self._fallback.read(oid)
                data = answer[1] if answer is not None and answer[0] == "blob" else None
            yield data

    def close(self) -> None:
        self._fallback.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    def _read_here(self, oid: str) -> bytes | None:
        from dulwich.objects import ObjectID  # loaded late: only big files are read in bulk

        try:
            kind, data = self._opened().get_raw(ObjectID(oid.encode("ascii")))
        except Exception:
            # Whatever it cannot read (damage included), git reads or says why it cannot.
            return None
        return data if kind == BULK_BLOB_TYPE else None

    def _opened(self) -> DiskObjectStore:
        if self._store is None:
            from dulwich.object_store import DiskObjectStore  # loaded late: only big files are read in bulk

            self._store = DiskObjectStore(self._objects_dir)
        return self._store


# Reads objects that lie here and there in our packs, as a comparison does: small ones mostly, each once.
#
# A hot path: 450 trees and shards of two snapshots of 100,000 files take 7 ms, a `git cat-file` 12
# (`python -m tests.benchmarks --only diff`). As git does when it reads a pack, this trusts the checksum of the deflated
# bytes; no id is computed. Read by `pread`, never mapped: a pack that was cut short is then an error to report. What is
# not plain (a delta, damage) is left to the pack's own reader.

WINDOW = 1 << 13
"""Most trees and shards lie in one reading of this size."""
WIDE, HALVED = 1 << 16, 2
"""What is larger is read once more, by so much of its size that it is inflated at one go: text is."""
MAX_SCATTERED_READ = 1 << 26
"""What claims to be larger is read by those who doubt it."""
SCATTERED_READ_SLACK = 256
"""What deflate may add to bytes that it cannot make smaller, beside a part of their number: tables of its codes."""


class Scattered:
    """The objects of our packs."""

    def __init__(self, own: OwnPacks) -> None:
        self._own = own
        self._open: list[_Pack] | None = None

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `KeyError` where no pack has it, `Damaged` where none has it whole."""
        packs = self._open if self._open is not None else self._open_all()
        for place, pack in enumerate(packs):
            number = pack.find(oid)
            if number is None:
                continue
            if place:
                # What is asked for next most likely lies there, too.
                packs.insert(0, packs.pop(place))
            found = pack.read(number)
            if found is not None:
                return found
            break
        return self._own.read(oid)

    def close(self) -> None:
        for pack in self._open or ():
            pack.close()
        self._open = None
        self._own.close()

    def _open_all(self) -> list[_Pack]:
        # The fullest pack is the likeliest to have what is looked for.
        self._open = [_Pack(pack) for pack in sorted(self._own.packs, key=lambda pack: -pack.index.count)]
        return self._open


class _Pack:
    """One pack, opened when something is read."""

    def __init__(self, pack: PackFile) -> None:
        self.find = pack.index.find
        self._offset = pack.index.offset
        self._path = pack.path
        self._file = -1

    def read(self, number: int) -> tuple[bytes, bytes] | None:
        """The kind and the bytes of an object; None where the pack's own reader is to be asked."""
        try:
            offset = self._offset(number)
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            window = os.pread(self._file, WINDOW, offset)
            byte, at, shift = window[0], 1, 4
            code, size = byte >> 4 & 7, byte & 15
            while byte & 0x80:
                byte = window[at]
                size |= (byte & 0x7F) << shift
                at += 1
                shift += 7
            kind = KINDS.get(code)
            if kind is None or size > MAX_SCATTERED_READ:
                return None
            asked = WINDOW
            if size > WIDE:
                asked = size // HALVED
                window = os.pread(self._file, asked, offset)
            inflater = decompressobj()
            data = inflater.decompress(window[at:], size + 1)
            if not inflater.eof and len(window) == asked:
                # Bytes without a pattern take nine bits each in a code that was made for others.
                rest = os.pread(self._file, size + (size >> 3) + SCATTERED_READ_SLACK, offset + asked)
                data += inflater.decompress(inflater.unconsumed_tail + rest, size + 1 - len(data))
        except (OSError, IndexError, Damaged):
            return None
        except InflateError:
            return None
        return (kind, data) if inflater.eof and len(data) == size else None

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


# Objects by git's names, read in this process where a pack of a capture holds them; git's own reader tells the rest.
#
# For a comparison, which reads some hundred small objects and a few large ones: a git to ask costs 2 ms to start, and
# every object takes it longer.

FORMATS = {40: "sha1", 64: "sha256"}
TREE = "^{tree}"


class OwnFirst:
    """Answers as `CatFile` does, which is asked for what is not ours."""

    def __init__(self, git: Git, others: CatFile, like: str) -> None:
        """`like`: an id, as long as all of them."""
        self._others = others
        self._own = Scattered(_packs(git, like))
        self._trees: dict[tuple[str, str], dict[bytes, tuple[int, bytes]]] = {}

    def ours(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `KeyError` where no pack of ours has it, `Damaged` where none whole."""
        return self._own.read(oid)

    def root_tree(self, name: str) -> bytes:
        """The bytes of the tree that the whole id of a commit or a tree means; `KeyError` where it is not ours."""
        kind, data = self._own.read(_raw(name))
        if kind == b"commit" and data.startswith(b"tree "):
            kind, data = self._own.read(_raw(data[5 : data.find(b"\n")].decode("ascii", "replace")))
        if kind != b"tree":
            raise KeyError(name)
        return data

    def read(self, name: str | bytes) -> GitObject | None:
        """The object of that name; None where there is none."""
        try:
            kind, data = self._find(os.fsdecode(name))
        except (KeyError, Damaged):
            return self._others.read(name)
        return GitObject(kind.decode("ascii"), data)

    def read_many(self, names: Iterable[str | bytes]) -> Iterator[GitObject | None]:
        """The objects of these names in turn."""
        return map(self.read, names)

    def close(self) -> None:
        self._own.close()

    def _find(self, name: str) -> tuple[bytes, bytes]:
        start, colon, path = name.partition(":")
        if colon:
            above, _, last = path.rpartition("/")
            return self._own.read(self._tree(start, above)[os.fsencode(last)][1])
        if name.endswith(TREE):
            return b"tree", self.root_tree(name.removesuffix(TREE))
        return self._own.read(_raw(name))

    def _tree(self, start: str, path: str) -> dict[bytes, tuple[int, bytes]]:
        found = self._trees.get((start, path))
        if found is None:
            found = self._trees[start, path] = self._read_tree(start, path)
        return found

    def _read_tree(self, start: str, path: str) -> dict[bytes, tuple[int, bytes]]:
        if not path:
            return decode_by_name(self.root_tree(start), len(start) // 2)
        above, _, last = path.rpartition("/")
        mode, oid = self._tree(start, above)[os.fsencode(last)]
        if mode != DIRECTORY:
            raise KeyError(path)
        return decode_by_name(self._own.read(oid)[1], len(oid))


def _packs(git: Git, like: str) -> OwnPacks:
    object_format = FORMATS.get(len(like), "sha1")
    place = os.path.join(_common_dir(git.git_dir), "objects", "pack")
    try:
        return OwnPacks.open(place, object_format)
    except OSError:
        return OwnPacks(place, object_format, [])


def _raw(name: str) -> bytes:
    """The bytes of a whole id; `KeyError` where a name is none."""
    try:
        oid = bytes.fromhex(name)
    except ValueError:
        raise KeyError(name) from None
    if 2 * len(oid) != len(name) or len(name) not in FORMATS:
        raise KeyError(name)
    return oid


def _common_dir(git_dir: str) -> str:
    """Where git keeps the objects: in a linked worktree a file says it."""
    try:
        with open(os.path.join(git_dir, "commondir"), "rb", opener=open_file_only) as file:
            return os.path.join(git_dir, os.fsdecode(file.read().removesuffix(b"\n")))
    except OSError:
        return git_dir


BLOCK = 1 << 17
"""Blocks begin at multiples of this."""
OVERLAP = 1 << 14
"""So much of the next is read with each: an object that begins in a block mostly ends in what is read of it."""
MAX_BLOCKS = 24
"""So many of a pack stay in memory. The files of a directory follow one another; its manifest lies elsewhere."""
MAX_SIZE = 1 << 26
"""What claims to be larger is read by those who doubt it."""
SLACK = 256
"""What deflate may add to bytes that it cannot make smaller, beside a part of their number: tables of its codes."""
LIST_AFTER_READS = 1 << 10
"""Who has read so many objects of a pack, and a sixteenth of it, will read most: where all are is learned by heart."""
WHOLE_SNAPSHOT_FACTOR = 4
"""Who reads a whole snapshot surely will: so much sooner."""
MAX_LISTED = 1 << 19
"""So many are learned, at 150 bytes each, in a process."""
ONE_SHOT_LIMIT = 1 << 18
"""What claims to be smaller is inflated at one go, which spares what a stream needs between two. It may turn out to be
more, by no more than deflate can make of as many bytes."""
DEFLATED, FRAME = 0x78, 2
"""How the frame of git's streams begins, and how long it is."""
CHECKSUM = 4
"""So long is what the frame ends with."""
RAW_DEFLATE = -15
"""Without the frame's checksum: what an object is held to is its id, or what its pack's index has of all its bytes."""
BLOB = 3
"""What an entry of a pack says that holds one."""
NO_OFFSET = 0
"""Where a pack begins there is no object."""


class PackReader:
    """The objects of our packs."""

    def __init__(self, own: OwnPacks, object_format: str, *, reads_most: bool = False) -> None:
        """`reads_most`: a whole snapshot is going to be read."""
        self._own = own
        self._new = getattr(hashlib, object_format)
        self._open: list[_PackCursor] | None = None
        self._reads_most = reads_most

    def packed(self, oid: bytes) -> bytes | None:
        """A blob of which the packed bytes have the checksum that was taken when the id was; None where nothing tells
        so. To hash what comes of them takes a third of the time that it takes to inflate it."""
        packs = self._open if self._open is not None else self._open_all()
        for place, pack in enumerate(packs):
            offset = pack.find(oid)
            if offset is None:
                continue
            if place:
                packs.insert(0, packs.pop(place))
            return pack.packed(offset)
        return None

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `KeyError` where no pack has it, `Damaged` where none has it whole."""
        packs = self._open if self._open is not None else self._open_all()
        for place, pack in enumerate(packs):
            offset = pack.find(oid)
            if offset is None:
                continue
            if place:
                # What is asked for next most likely lies there, too.
                packs.insert(0, packs.pop(place))
            found = pack.read(offset)
            if found is None:
                break
            # Asked for by its own name a hash is made twice as fast.
            digest = self._new(b"%b %d\0" % (found[0], len(found[1])), usedforsecurity=False)
            digest.update(found[1])
            if digest.digest() == oid:
                return found
            break
        return self._own.read(oid)

    def close(self) -> None:
        for pack in self._open or ():
            pack.close()
        self._open = None
        self._own.close()

    def _open_all(self) -> list[_PackCursor]:
        # The fullest pack is the likeliest to have what is looked for.
        packs = sorted(self._own.packs, key=lambda pack: -pack.index.count)
        listed, self._open = 0, []
        for pack in packs:
            listed += pack.index.count
            self._open.append(_PackCursor(pack, listed <= MAX_LISTED, self._reads_most))
        return self._open


class _PackCursor:
    """One pack, opened when something is read."""

    def __init__(self, pack: PackFile, may_list: bool, reads_most: bool) -> None:
        self.find: Callable[[bytes], int | None] = self._look_up
        self._index = pack.index
        self._path = pack.path
        self._file = -1
        self._blocks: dict[int, memoryview] = {}
        self._ends: dict[int, int] = {}
        self._checksums: dict[int, int] = {}
        """By where they begin: where objects end, and what their packed bytes sum up to; learned when that is asked."""
        self._is_listed = False
        worth = max(LIST_AFTER_READS, pack.index.count // 16) // (WHOLE_SNAPSHOT_FACTOR if reads_most else 1)
        self._until_listed = max(1, worth) if may_list else 0

    def packed(self, offset: int) -> bytes | None:
        """The bytes of a blob, if its entry has its checksum; None where that is not known, or it has not."""
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
        """The kind and the bytes of an object, unchecked; None where its pack's own reader is to be asked."""
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
            # Bytes without a pattern take nine bits each in a code that was made for others.
            most = size + (size >> 3) + SLACK
            if view[at] != DEFLATED:
                return None
            if size < ONE_SHOT_LIMIT and at + most <= len(view):
                data = decompress(view[at + FRAME : at + most], RAW_DEFLATE, size + 1)
                return (kind, data) if len(data) == size else None
            inflater = decompressobj(RAW_DEFLATE)
            data = inflater.decompress(view[at + FRAME : at + most], size + 1)
            if not inflater.eof and at + most > len(view):
                data += self._inflate_more(inflater, start, at + most - len(view), size + 1 - len(data))
        except (OSError, IndexError):
            return None
        except InflateError:
            return None
        return (kind, data) if inflater.eof and len(data) == size else None

    def close(self) -> None:
        self._blocks.clear()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _inflate_more(self, inflater: Any, start: int, most: int, missing: int) -> bytes:
        """What follows in the next blocks, as far as it goes."""
        parts = []
        while most > 0 and missing > 0 and not inflater.eof:
            start += BLOCK
            view = (self._blocks.get(start) or self._read_block(start))[OVERLAP : OVERLAP + most]
            if not view:
                break
            parts.append(inflater.decompress(view, missing))
            missing -= len(parts[-1])
            most -= len(view)
        return b"".join(parts)

    def _look_up(self, oid: bytes) -> int | None:
        """Where an object begins, as the index says it; None where the pack has none of that name."""
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
        # Here an index alone says which bytes are whose. One bit of it that has changed since can lead to another
        # object, whole and with the right checksum; and it must be the index of this very pack.
        if not self._index.is_whole() or not self._is_of_this_pack():
            return
        offsets = self._offsets()
        # What ends the last one is not told: it is left to those who find out.
        self._ends = {**dict(pairwise(sorted(offsets))), NO_OFFSET: NO_OFFSET}
        self._checksums = dict(zip(offsets, self._index.checksums(), strict=True))

    def _is_of_this_pack(self) -> bool:
        """Whether the pack ends as its index says that it does."""
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

    def _opened(self) -> int:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._file


def _rest_of_size(data: memoryview, at: int, size: int) -> tuple[int, int]:
    """The size of an entry's object, and where the last byte of what says it stands."""
    shift, byte = 4, 0x80
    while byte & 0x80:
        at += 1
        byte = data[at]
        size |= (byte & 0x7F) << shift
        shift += 7
    return size, at


# The objects of snapshots, read in this process from the packs of captures; git's own reader answers for the rest.
#
# A restore reads every file's blob once: from our packs that takes 15 µs and the inflating, through a pipe to git five
# times as long. Every object is held to its id, whoever read it; a file's, where that is enough, to the checksum by
# which it was packed (decision 38). To be opened in the process that uses it: a child that was forked shares no pipe
# with its parent.

HINT = "'git envlog fsck' says what else is missing"
OpenSealed = Callable[[EnvPath, bytes], bytes]


class ObjectReader:
    """Reads objects by their raw ids."""

    lends: bool = False
    """Whether asking `lend` is worth anything."""
    by_checksum: bool = False
    """Whether it is enough for a file that its packed bytes are those that were packed; who reads a whole snapshot that
    a key of ours signed is content with that."""

    def __init__(
        self,
        git: Git,
        pack_dir: str,
        object_format: str,
        open_sealed: OpenSealed | None = None,
        *,
        made: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """`made`: blobs by their ids that stand in no snapshot."""
        self._made = made or {}
        self._git = git
        self._pack_dir = pack_dir
        self._format = object_format
        self._open_sealed = open_sealed

    @once
    def _own(self) -> PackReader:
        own = OwnPacks.open(self._pack_dir, self._format)
        return PackReader(own, self._format, reads_most=self.by_checksum)

    @once
    def _child(self) -> CatFile:
        return CatFile(self._git)

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `Damaged` where it is not to be had whole."""
        if oid in self._made:
            return b"blob", self._made[oid]
        try:
            return self._own.read(oid)
        except (KeyError, Damaged):
            return self._ask_git(oid)

    def blob(self, oid: bytes) -> bytes:
        """The bytes of a blob."""
        if self.by_checksum and (packed := self._own.packed(oid)) is not None:
            return packed
        kind, data = self.read(oid)
        if kind != b"blob":
            raise Damaged(f"object {oid.hex()} is no blob", hint=HINT)
        return data

    def plain(self, entry: Entry) -> bytes:
        """The bytes of what stands in the tree for an entry."""
        assert entry.oid is not None
        return self.blob(entry.oid)

    def open_sealed(self, path: EnvPath, blob: bytes) -> bytes:
        """The plain bytes of a sealed file; `SealingError` where the key is not here."""
        if self._open_sealed is None:
            raise Damaged("there is nothing here to open sealed files with")
        return self._open_sealed(path, blob)

    def lend(self, entry: Entry, take: Callable[[int, bool], bool]) -> bool:
        """Whether `take` was given an open file that should have the bytes of an entry, and took them; it is told
        whether they are worth being taken only where two files can share them."""
        return False

    def close(self) -> None:
        for name in ("_own", "_child"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

    def list_children(self, tree: bytes) -> list[bytes]:
        """Return the ids of a tree's entries, in order; raise `Damaged` if it is no tree or cannot be read."""
        kind, data = self.read(tree)
        if kind != b"tree":
            raise Damaged(f"object {tree.hex()} is no tree of pieces", hint=HINT)
        return [oid for _, _, oid in decode_tree(data, len(tree))]

    def _ask_git(self, oid: bytes) -> tuple[bytes, bytes]:
        answer = self._child.read(oid.hex())
        if answer is None:
            raise Damaged(f"an object is missing: {oid.hex()}", hint=HINT)
        kind = answer.kind.encode("ascii")
        if object_id(kind, answer.data, self._format) != oid:
            raise Damaged(f"object {oid.hex()} has other bytes than its id says", hint=HINT)
        return kind, answer.data
