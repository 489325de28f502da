"""The files that probes are shown: which of a capture wake them, and their bytes as they were captured."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import NamedTuple

from git_envhist.capture.descent import display_path, join
from git_envhist.capture.records import SIZE, WIDTH, DirectoryRecord
from git_envhist.capture.seal import unseal
from git_envhist.capturing.factparts import ChunkedFile, WholeFile, wanted_parts
from git_envhist.errors import Damaged, SealingError
from git_envhist.facts import parts_leaf
from git_envhist.facts.probe import FileProbe, Parts, RandomAccessFile
from git_envhist.store.idx import PackIndex
from git_envhist.store.keys import Key
from git_envhist.store.packfile import PackFile, open_entry
from git_envhist.store.packs import StagedPack
from git_envhist.store.trees import decode_tree

LARGEST = 8 << 20
"""No file is read for a fact that is larger."""
ANY_MAY_RUN = 0o111
SMALLEST_PROGRAM, LARGEST_PROGRAM = 1 << 17, 256 << 20
"""Of these sizes are programs that say what they were built from."""
TOGETHER = 32 << 20
WINDOW, MOST_MARKS = 1 << 17, 4
"""So much behind a mark is looked at; a program that looks for marks holds one in a text, too."""


class FileTriggers(NamedTuple):
    """Which files wake which probes, by their names."""

    exact: dict[bytes, list[str]]
    starts: dict[bytes, list[str]]
    ends: dict[bytes, list[str]]
    within: dict[bytes, FileTriggers]
    """By the name of a directory, what wakes in no other."""
    undotted: dict[str, int]
    """By probe, of what the size is a multiple where the name has no ending."""

    def at(self, path: bytes) -> tuple[FileTriggers, ...]:
        """What wakes in a directory."""
        here = self.within.get(path.rpartition(b"/")[2])
        return (self,) if here is None else (self, here)

    def numbers(self, record: DirectoryRecord) -> list[int]:
        """The entries of a directory that wake any; most wake none."""
        exact, starts, ends = self.exact, tuple(self.starts), tuple(self.ends)
        names = record.names
        # All names at once: of a directory of 20,000 it is seen in a tenth of the time that there is nothing in it.
        if (
            exact.keys().isdisjoint(names)
            and not _may_fit(names, starts, slice)
            and not _may_fit(names, ends, _from_end)
        ):
            return []
        return [
            number
            for number, name in enumerate(names)
            if name in exact or name.endswith(ends) or name.startswith(starts)
        ]

    def probes(self, name: bytes) -> set[str]:
        """The probes that one file wakes."""
        found = set(self.exact.get(name, ()))
        for table, has in ((self.starts, name.startswith), (self.ends, name.endswith)):
            for key, probes in table.items():
                if has(key):
                    found.update(probes)
        return found


def _may_fit(names: Iterable[bytes], affixes: tuple[bytes, ...], side: Callable[[int], slice]) -> bool:
    """Whether any name has, at this side, as much as the shortest affix has of any of them."""
    length = min(map(len, affixes), default=0)
    if not length:
        return bool(affixes)
    part = side(length)
    return not {affix[part] for affix in affixes}.isdisjoint(map(itemgetter(part), names))


def _from_end(length: int) -> slice:
    return slice(-length, None)


class TriggeredFile(NamedTuple):
    """A file that wakes a probe."""

    number: int
    name: bytes
    oid: bytes


def compile_file_triggers(probes: Mapping[str, FileProbe]) -> FileTriggers:
    """Who is woken by what, from the lines of the registry."""
    wake = FileTriggers(
        {}, {}, {}, {}, {probe: line.undotted for probe, line in probes.items() if line.undotted}
    )
    for probe, line in probes.items():
        for pattern in (*line.reads, *line.sees):
            directory, slash, name = pattern.rpartition(b"/")
            place = wake.within.setdefault(directory, FileTriggers({}, {}, {}, {}, {})) if slash else wake
            table, key = place.exact, name
            if name.startswith(b"*"):
                table, key = place.ends, name[1:]
            elif name.endswith(b"*"):
                table, key = place.starts, name[:-1]
            table.setdefault(key, []).append(probe)
    return wake


def files_triggering_probes(
    record: DirectoryRecord | None, wake: FileTriggers, width: int
) -> dict[str, list[TriggeredFile]]:
    """By probe, the files of a directory that wake it."""
    found: dict[str, list[TriggeredFile]] = {}
    if record is None:
        return found
    for place in wake.at(record.path):
        for number in place.numbers(record):
            name, oid = record.names[number], record.id_at(number, width)
            if any(oid):
                for probe in place.probes(name):
                    found.setdefault(probe, []).append(TriggeredFile(number, name, oid))
    for probe, number in _undotted(record, wake):
        oid = record.id_at(number, width)
        if any(oid):
            found.setdefault(probe, []).append(TriggeredFile(number, record.names[number], oid))
    return found


def _undotted(record: DirectoryRecord, wake: FileTriggers) -> Iterator[tuple[str, int]]:
    """Files that by their sizes may be what a probe reads, though no ending says so; hardly any is."""
    numbers = (
        [number for number, name in enumerate(record.names) if b"." not in name] if wake.undotted else []
    )
    cells = record.cells if numbers else ()
    for number in numbers:
        size = cells[number * WIDTH + SIZE]
        for probe, step in wake.undotted.items():
            if size and size % step == 0 and probe not in wake.probes(record.names[number]):
                yield probe, number


class CapturedFiles:
    """Reads what was captured just now, and what stood in the store before."""

    def __init__(
        self,
        objects: Iterable[tuple[bytes, bytes, int]],
        packs: Iterable[StagedPack],
        object_format: str,
        read_known: Callable[[bytes], bytes],
        key: Key | None,
    ) -> None:
        width = 20 if object_format == "sha1" else 32
        self._entries = {oid: entry for oid, entry, _ in objects}
        self._packs = [
            PackFile(pack.pack_path, PackIndex(pack.index_path, width), object_format) for pack in packs
        ]
        self._read_known = read_known
        self._key = key
        self._given = 0

    def show(
        self, record: DirectoryRecord, woken: Iterable[TriggeredFile], probe: FileProbe
    ) -> Iterator[tuple[object, ...]]:
        """The files of a directory as `probe.File` is made of: (name, bytes, size, sealed, id, parts)."""
        woken = list(woken)
        parts = self._parts(record, woken, probe) if probe.in_parts else {}
        modes, cells = record.modes, record.cells
        self._given = 0
        reads = _names_at(record.path, probe.reads)
        for number, name, oid in woken:
            extras = record.extras.get(number, b"")
            sealed = b"as=sealed" in extras
            size = cells[number * WIDTH + SIZE]
            data = None
            if probe.mark and stat.S_ISREG(modes[number]) and modes[number] & ANY_MAY_RUN and not sealed:
                data = self._program(oid, size, record.pieces.get(number), probe.mark)
            is_plain = stat.S_ISREG(modes[number]) and b"as=pieces" not in extras
            if is_plain and size <= LARGEST and (is_named(name, reads) or _has_no_ending(name, probe)):
                data = self._data(join(record.path, name), oid, sealed)
            yield (name, data, size, sealed, oid, parts.get(name, ()))

    def _parts(
        self, record: DirectoryRecord, woken: list[TriggeredFile], probe: FileProbe
    ) -> dict[bytes, Parts]:
        """Of a directory that holds files in pieces, what is wanted of them."""
        if not any(record.pieces.get(number) for number, _, _ in woken):
            return {}
        sources = {name: self._source(record, number, name, oid) for number, name, oid in woken}
        return wanted_parts(parts_leaf(probe), sources)

    def _source(self, record: DirectoryRecord, number: int, name: bytes, oid: bytes) -> RandomAccessFile:
        size, tree = record.cells[number * WIDTH + SIZE], record.pieces.get(number)
        if tree is not None:
            return ChunkedFile(self._blob, tree[: len(oid)], size)
        is_shown = stat.S_ISREG(record.modes[number]) and size <= LARGEST
        sealed = b"as=sealed" in record.extras.get(number, b"")
        path = join(record.path, name)
        return WholeFile(size, lambda: self._data(path, oid, sealed) if is_shown else None)

    def _data(self, path: bytes, oid: bytes, sealed: bool) -> bytes | None:
        blob = self._blob(oid)
        if not sealed:
            return blob
        key = self._key
        try:
            return unseal(
                lambda wanted: key if key and key.id == wanted else None, display_path(path), b"file", blob
            )
        except SealingError:
            return None

    def _program(self, oid: bytes, size: int, pieces: bytes | None, mark: bytes) -> bytes | None:
        """What a program says of itself, if it does."""
        if not SMALLEST_PROGRAM <= size <= LARGEST_PROGRAM:
            return None
        if pieces is not None:
            return text_after_markers(self._pieces(pieces[: len(oid)]), mark)
        blob = self._blob(oid)
        # Together they are one answer: of a directory full of them, each tells its part.
        self._given += len(blob)
        return blob if mark in blob and self._given <= TOGETHER else text_after_markers((blob,), mark)

    def _pieces(self, tree: bytes) -> Iterator[bytes]:
        for _, _, run in decode_tree(self._blob(tree), len(tree)):
            for _, _, piece in decode_tree(self._blob(run), len(tree)):
                yield self._blob(piece)

    def _blob(self, oid: bytes) -> bytes:
        entry = self._entries.get(oid)
        if entry is not None:
            return open_entry(entry)[1]
        for pack in self._packs:
            found = pack.read(oid)
            if found is not None:
                return found[1]
        try:
            return self._read_known(oid)
        except KeyError:
            raise Damaged(f"object {oid.hex()} is missing") from None

    def close(self) -> None:
        for pack in self._packs:
            pack.close()


def text_after_markers(blocks: Iterable[bytes], mark: bytes) -> bytes | None:
    """What stands behind the first few marks in a long text, each with its mark; None where there is none."""
    found: list[bytes] = []
    rest = b""
    for block in blocks:
        found = [window + block[: max(0, WINDOW - len(window))] for window in found]
        text = rest + block
        at = text.find(mark)
        while at >= 0 and len(found) < MOST_MARKS:
            found.append(text[at : at + WINDOW])
            at = text.find(mark, at + 1)
        rest = text[1 - len(mark) :]
    return b"".join(found) or None


def _has_no_ending(name: bytes, probe: FileProbe) -> bool:
    return probe.undotted > 0 and b"." not in name


def _names_at(path: bytes, patterns: Iterable[bytes]) -> list[bytes]:
    """What the patterns say of the names in one directory."""
    here = path.rpartition(b"/")[2]
    parts = (pattern.rpartition(b"/") for pattern in patterns)
    return [name for directory, slash, name in parts if not slash or directory == here]


def is_named(name: bytes, patterns: Iterable[bytes]) -> bool:
    """Whether a name is one of those that a line of the registry means."""
    for pattern in patterns:
        if pattern == name or (pattern.startswith(b"*") and name.endswith(pattern[1:])):
            return True
        if pattern.endswith(b"*") and name.startswith(pattern[:-1]):
            return True
    return False
