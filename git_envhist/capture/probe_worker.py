"""The files that probes are shown: which of a capture wake them, and their bytes as they were captured."""

from __future__ import annotations

import contextlib
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, cast

from git_envhist.errors import Damaged, EnvhistError, SealingError
from git_envhist.model import SQLITE_HEADER, UNREAD, EnvPath, Fact
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_reader import PackFile, open_entry
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.objects.trees import decode_tree
from git_envhist.paths import display_path, join
from git_envhist.platform import worker_mode
from git_envhist.probes import PROBES, machine_leaf, parts_leaf, place_leaf, tree_leaf
from git_envhist.probes.base import (
    EnvironmentProbe,
    File,
    FileProbe,
    LargeFileProbeModule,
    MachineProbe,
    Parts,
    ProbeTarget,
    RandomAccessFile,
)
from git_envhist.probes.keys import key_of
from git_envhist.secrets.keys import Key
from git_envhist.secrets.seal import keyed_hash, unseal
from git_envhist.snapshots.chunks import SQLITE_BLOCK
from git_envhist.snapshots.records import fact_line
from git_envhist.workers import (
    DONE,
    FRAME,
    Frame,
    InlineWorker,
    Job,
    SharedCounters,
    WorkerHandle,
    fork_line,
    receive,
    serve,
    spawn_line,
)
from git_envhist.worktree.stat_cache import SIZE, WIDTH, DirectoryRecord

# Captured files as sources to be read here and there: a leaf says what it wants of those that are too large to show.
#
# Of a file in pieces only the pieces are read that are asked for: a database is cut at every 16 KiB, any other where
# its content says so, and is read from its beginning.

REMEMBERED = 512
"""Pieces: the pages of a table lie near each other."""
MAX_PARTS = 128 << 20

ReadBlob = Callable[[bytes], bytes]


class WholeFile(NamedTuple):
    """A file that is kept as one blob; read when it is asked for."""

    size: int
    data: Callable[[], bytes | None]

    def read(self, offset: int, length: int) -> bytes:
        return (self.data() or b"")[offset : offset + length]


class ChunkedFile:
    """A file that is kept in pieces."""

    def __init__(self, read_blob: ReadBlob, tree: bytes, size: int) -> None:
        self.size = size
        self._pieces = [
            piece
            for _, _, run in decode_tree(read_blob(tree), len(tree))
            for _, _, piece in decode_tree(read_blob(run), len(tree))
        ]
        self._blob = lru_cache(REMEMBERED)(read_blob)
        self._is_even = bool(self._pieces) and self._blob(self._pieces[0]).startswith(SQLITE_HEADER)

    def read(self, offset: int, length: int) -> bytes:
        if not self._is_even:
            return self._beginning(offset + length)[offset:]
        first, last = offset // SQLITE_BLOCK, (offset + length - 1) // SQLITE_BLOCK
        data = b"".join(map(self._blob, self._pieces[first : last + 1]))
        start = offset - first * SQLITE_BLOCK
        return data[start : start + length]

    def _beginning(self, length: int) -> bytes:
        parts: list[bytes] = []
        left = length
        for piece in self._pieces:
            if left <= 0:
                break
            parts.append(self._blob(piece))
            left -= len(parts[-1])
        return b"".join(parts)[:length]


def wanted_parts(leaf: LargeFileProbeModule, sources: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """What a leaf wants of some files."""
    try:
        wanted = leaf.parts_of(sources)
    except EnvhistError:
        raise
    except Exception as wrong:  # the files may come from anywhere: it may cost a warning and no snapshot
        raise EnvhistError(f"{type(wrong).__name__}: {wrong}") from wrong
    if sum(len(data) for parts in wanted.values() for _, data in parts) > MAX_PARTS:
        raise EnvhistError("more is wanted of its files than can be shown")
    return wanted


MAX_SIZE = 8 << 20
"""No file is read for a fact that is larger."""
ANY_MAY_RUN = 0o111
SMALLEST_PROGRAM, MAX_PROGRAM = 1 << 17, 256 << 20
"""Of these sizes are programs that say what they were built from."""
TOGETHER = 32 << 20
WINDOW, MAX_MARKS = 1 << 17, 4
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
            if is_plain and size <= MAX_SIZE and (is_named(name, reads) or _has_no_ending(name, probe)):
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
        is_shown = stat.S_ISREG(record.modes[number]) and size <= MAX_SIZE
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
        if not SMALLEST_PROGRAM <= size <= MAX_PROGRAM:
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
        while at >= 0 and len(found) < MAX_MARKS:
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


# Runs the leaves of probes, in a process of its own: what they do there can be ended at any time.
#
# Its methods are generators of frames, as those of every worker of a capture.

FINGERPRINT_BYTES = 8
FAILED = "the probe failed"
"""What it raised may hold bytes of the files."""
MAX_FACTS = 200_000
"""Of one directory, or of the machine."""


class ProbeWorker:
    """Asks leaves, as it is told."""

    def __init__(self, job: Job) -> None:
        self._place = ProbeTarget(*cast(tuple[str, str, str], job["place"]))
        secret = cast(bytes | None, job["key"])
        self._key = Key.of(secret) if secret is not None else None

    def call(self, method: str, arguments: tuple[Any, ...]) -> Iterator[Frame]:
        frames: Iterator[Frame] = getattr(self, "do_" + method)(*arguments)
        return frames

    def close(self) -> None:
        """There is nothing to let go of."""

    def do_machine(self, name: str) -> Iterator[Frame]:
        """("lines", those of a probe of the machine), or ("failed", b"", why)."""
        probe = PROBES[name]
        assert isinstance(probe, MachineProbe)
        try:
            yield ("lines", _lines(machine_leaf(probe).facts_of(self._place.root)))
        except Exception as wrong:
            yield ("failed", b"", _why(wrong))

    def do_place(self, name: str) -> Iterator[Frame]:
        """The same of a probe of what belongs to the environment beside its files."""
        probe = PROBES[name]
        assert isinstance(probe, EnvironmentProbe)
        try:
            yield ("lines", _lines(place_leaf(probe).facts_of(self._place, self._keyed)))
        except Exception as wrong:
            yield ("failed", b"", _why(wrong))

    def do_tree(self, name: str, directories: list[tuple[bytes, list[tuple[Any, ...]]]]) -> Iterator[Frame]:
        """("lines", those of some directories), and ("failed", directory, why) for each that could not be read."""
        probe = PROBES[name]
        assert isinstance(probe, FileProbe)
        leaf = tree_leaf(probe)
        for directory, files in directories:
            given = {name: File(*told) for name, *told in files}
            try:
                yield ("lines", _lines(leaf.facts_of(directory, given, self._keyed)))
            except Exception as wrong:
                # So that what was told of it before is not taken for gone.
                place = Fact(name, key_of(directory, UNREAD), FAILED, EnvPath(directory))
                yield ("lines", [fact_line(place)])
                yield ("failed", directory, _why(wrong))

    def _keyed(self, context: bytes, secret: bytes) -> str | None:
        if self._key is None:
            return None
        return keyed_hash(self._key, secret, context)[:FINGERPRINT_BYTES].hex()


def _lines(facts: Any) -> list[bytes]:
    lines = []
    for fact in facts:
        lines.append(fact_line(fact))
        if len(lines) > MAX_FACTS:
            raise ValueError(f"more than {MAX_FACTS:,} facts")
    return lines


def _why(wrong: Exception) -> str:
    return f"{type(wrong).__name__}: {wrong}"[:200]


def main(arguments: list[str]) -> None:
    """Serve a host program that must not be forked: descriptors come as arguments, the job as the first frame."""
    asking, answering = map(int, arguments[:2])
    try:
        job = dict(cast(tuple[tuple[str, Any], ...], receive(asking)))
    except EOFError:
        return  # whoever asked was stopped before it could say what for
    serve(lambda: ProbeWorker(job), asking, answering)


if __name__ == "__main__":
    main(sys.argv[1:])


# Asks probes, in a process of their own, and waits no longer than their time.
#
# The process is made when there is something to ask, which after most captures' changes there is not. Where a probe
# does not answer in time the process is ended, and another one made for the next.

WORKER_MODULE = "git_envhist.capture.probe_worker"
SECONDS = 5.0
"""The time that one probe has in one capture."""


class ProbeAnswer(NamedTuple):
    """What came of a question."""

    lines: list[bytes]
    failed: list[tuple[bytes, str]]
    """(directory, why): what could not be read."""
    whole: bool
    """Whether the probe answered to its end."""


class ProbeProcess:
    """One process for all probes, made when it is first asked."""

    def __init__(self, how: str, job: Job, others: list[WorkerHandle]) -> None:
        self._how = worker_mode(how)
        self._job = job
        self._others = others
        self._line: WorkerHandle | None = None
        self._shared: SharedCounters | None = None
        self._asked = 0.0

    def ask(self, method: str, *arguments: object) -> None:
        """Ask now; `answer` is to follow before the next question."""
        self._asked = time.monotonic()
        try:
            if self._line is None:
                self._line = self._make_line()
            self._line.ask(method, arguments)
        except (EnvhistError, OSError):
            # Whoever waits for the answer is told that there is none.
            self.close()

    def answer(self, seconds: float = SECONDS) -> ProbeAnswer:
        """What was answered, `seconds` after the question at the latest."""
        lines: list[bytes] = []
        failed: list[tuple[bytes, str]] = []
        try:
            for kind, *words in self._frames(self._asked + seconds):
                if kind == "lines":
                    lines += words[0]  # type: ignore[arg-type]
                else:
                    failed.append((words[0], words[1]))  # type: ignore[arg-type]
        except (EnvhistError, OSError) as error:
            self.close()
            return ProbeAnswer([], [(b"", str(error))], whole=False)
        return ProbeAnswer(lines, failed, whole=True)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(OSError):
                line.close()
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()

    def _frames(self, until: float) -> Iterator[Frame]:
        line = self._line
        if line is None:
            raise EnvhistError("it could not be asked")
        while True:
            if line.descriptor is not None and not _has_come(line.descriptor, until):
                raise EnvhistError("it did not answer in its time")
            for kind, *words in line.receive():
                if kind == FRAME:
                    yield tuple(words)
                elif kind == DONE:
                    return
                else:
                    raise EnvhistError(f"{words[0]}: {words[1]}")

    def _make_line(self) -> WorkerHandle:
        if self._how == "fork":
            return fork_line(lambda: ProbeWorker(self._job), self._others)
        if self._how == "spawn":
            self._shared = SharedCounters(1)
            return spawn_line(WORKER_MODULE, self._job, self._shared, 0)
        return InlineWorker(ProbeWorker(self._job))


def _has_come(descriptor: int, until: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))
