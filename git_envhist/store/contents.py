"""The objects of snapshots, read in this process from the packs of captures; git's own reader answers for the rest.

A restore reads every file's blob once: from our packs that takes 15 µs and the inflating, through a pipe to git five
times as long. Every object is held to its id, whoever read it; a file's, where that is enough, to the checksum by which
it was packed (decision 38). To be opened in the process that uses it: a child that was forked shares no pipe with its
parent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from git_envhist.errors import Damaged
from git_envhist.model import Entry, EnvPath
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.pointers import read_pointer
from git_envhist.store.trees import decode_tree, object_id
from git_envhist.store.windows import PackReader
from git_envhist.values import once

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

    def stream_pieces(self, pointer: bytes) -> Iterator[bytes]:
        """The bytes of a big file, piece by piece, given what stands in the tree for it."""
        told = read_pointer(pointer)
        size = 0
        for run in self._listed(told.tree):
            for piece in self._listed(run):
                data = self.blob(piece)
                size += len(data)
                if size > told.size:
                    break
                yield data
        if size != told.size:
            raise Damaged("the pieces of a file are not as long as it is said to be", hint=HINT)

    def count_pieces(self, pointer: bytes) -> Counter[bytes]:
        """The pieces of a big file, and how often each comes: a hole of terabytes is few, many times."""
        found: Counter[bytes] = Counter()
        for run, times in Counter(self._listed(read_pointer(pointer).tree)).items():
            for piece, often in Counter(self._listed(run)).items():
                found[piece] += often * times
        return found

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

    def _listed(self, tree: bytes) -> list[bytes]:
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
