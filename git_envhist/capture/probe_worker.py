"""Run probes in a separate process, and provide the captured files that they read.

`FileTriggers` finds the files that a probe wants; `CapturedFiles` reads their captured bytes from the packs
of this capture and of earlier ones. `ProbeProcess` sends requests to a `ProbeWorker` in a child process and
enforces its timeout.
"""

from __future__ import annotations

import contextlib
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from git_envhist.capture.file_triggers import TriggeredFile, matches_name
from git_envhist.errors import Damaged, EnvhistError, SealingError
from git_envhist.model import SQLITE_HEADER, UNREAD, EnvPath, Fact
from git_envhist.objects.pack_file import PackFile, open_entry
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.objects.trees import decode_tree
from git_envhist.paths import display_path, join
from git_envhist.platform import worker_mode
from git_envhist.probes import PROBES, environment_module, file_module, large_file_module, machine_module
from git_envhist.probes.base import (
    EnvironmentProbe,
    FileProbe,
    LargeFileProbeModule,
    MachineProbe,
    Parts,
    ProbedFile,
    ProbeTarget,
    RandomAccessFile,
)
from git_envhist.probes.fact_keys import key_of
from git_envhist.secrets.keys import Key
from git_envhist.secrets.seal import keyed_hash, unseal
from git_envhist.snapshots.chunks import SQLITE_BLOCK
from git_envhist.snapshots.fact_text import fact_line
from git_envhist.workers import (
    DONE,
    FRAME,
    Frame,
    InlineWorker,
    Job,
    SharedCounters,
    WorkerHandle,
    fork_worker,
    serve_spawned,
    spawn_worker,
)
from git_envhist.worktree.stat_cache import SIZE, WIDTH, DirectoryRecord

# Random access to captured files that are too large to be sent whole: the probe module names the byte ranges
# it wants.
# Of a chunked file only the needed chunks are read. SQLite databases have chunks of 16 KiB; other files have
# chunks of variable size and are read from the beginning.

CACHED_CHUNKS = 512
"""Cached chunks; the pages of a table are usually close together."""
MAX_PARTS = 128 << 20

ReadBlob = Callable[[bytes], bytes]


class WholeFile(NamedTuple):
    """A file stored as one blob, read on first use."""

    size: int
    data: Callable[[], bytes | None]

    def read(self, offset: int, length: int) -> bytes:
        return (self.data() or b"")[offset : offset + length]


class ChunkedFile:
    """A file stored in chunks."""

    def __init__(self, read_blob: ReadBlob, tree: bytes, size: int) -> None:
        self.size = size
        self._pieces = [
            piece
            for _, _, run in decode_tree(read_blob(tree), len(tree))
            for _, _, piece in decode_tree(read_blob(run), len(tree))
        ]
        self._blob = lru_cache(CACHED_CHUNKS)(read_blob)
        self._has_fixed_chunks = bool(self._pieces) and self._blob(self._pieces[0]).startswith(SQLITE_HEADER)

    def read(self, offset: int, length: int) -> bytes:
        if not self._has_fixed_chunks:
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
    """Return the byte ranges that a probe module wants of some files."""
    try:
        wanted = leaf.parts_of(sources)
    except EnvhistError:
        raise
    except Exception as error:  # the files are untrusted; a failure costs a warning, not the snapshot
        raise EnvhistError(f"{type(error).__name__}: {error}") from error
    if sum(len(data) for parts in wanted.values() for _, data in parts) > MAX_PARTS:
        raise EnvhistError("the probe asked for too many bytes of its files")
    return wanted


MAX_SIZE = 8 << 20
"""Larger files are not sent to probes."""
EXECUTE_BITS = 0o111
SMALLEST_PROGRAM, MAX_PROGRAM = 1 << 17, 256 << 20
"""Sizes of programs that may contain build information."""
MAX_SHOWN_PROGRAMS = 32 << 20
WINDOW, MAX_MARKS = 1 << 17, 4
"""Number of bytes sent from each marker, and the maximum number of markers.

A program that searches for markers contains one in its own text, so the first one may not be the real one.
"""


class CapturedFiles:
    """Read files of this capture and of earlier snapshots."""

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
        self._shown_bytes = 0

    def show(
        self, record: DirectoryRecord, triggered: Iterable[TriggeredFile], probe: FileProbe
    ) -> Iterator[tuple[object, ...]]:
        """Yield the files of a directory as tuples for `probe.File`: (name, bytes, size, sealed, id, parts)."""
        triggered = list(triggered)
        parts = self._parts(record, triggered, probe) if probe.in_parts else {}
        modes, cells = record.modes, record.cells
        self._shown_bytes = 0
        reads = _names_at(record.path, probe.reads)
        for number, name, oid in triggered:
            extras = record.extras.get(number, b"")
            sealed = b"as=sealed" in extras
            size = cells[number * WIDTH + SIZE]
            data = None
            if probe.mark and stat.S_ISREG(modes[number]) and modes[number] & EXECUTE_BITS and not sealed:
                data = self._program(oid, size, record.pieces.get(number), probe.mark)
            is_plain = stat.S_ISREG(modes[number]) and b"as=pieces" not in extras
            if is_plain and size <= MAX_SIZE and (matches_name(name, reads) or _has_no_ending(name, probe)):
                data = self._data(join(record.path, name), oid, sealed)
            yield (name, data, size, sealed, oid, parts.get(name, ()))

    def _parts(
        self, record: DirectoryRecord, triggered: list[TriggeredFile], probe: FileProbe
    ) -> dict[bytes, Parts]:
        """Return the byte ranges wanted of the chunked files of a directory."""
        if not any(record.pieces.get(number) for number, _, _ in triggered):
            return {}
        sources = {name: self._source(record, number, name, oid) for number, name, oid in triggered}
        return wanted_parts(large_file_module(probe), sources)

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
        """Return the build information of a program, or None."""
        if not SMALLEST_PROGRAM <= size <= MAX_PROGRAM:
            return None
        if pieces is not None:
            return text_after_markers(self._pieces(pieces[: len(oid)]), mark)
        blob = self._blob(oid)
        # One message contains all programs of a directory. Above a limit it has only the parts after the markers.
        self._shown_bytes += len(blob)
        return (
            blob
            if mark in blob and self._shown_bytes <= MAX_SHOWN_PROGRAMS
            else text_after_markers((blob,), mark)
        )

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
    """Return the bytes after the first markers, each with its marker; None if there is no marker."""
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
    """Return the patterns for names in one directory."""
    in_this = path.rpartition(b"/")[2]
    parts = (pattern.rpartition(b"/") for pattern in patterns)
    return [name for directory, slash, name in parts if not slash or directory == in_this]


# The worker side: runs probe modules in a process that can be killed at any time.
# Its methods are generators of frames, as for capture workers.

FINGERPRINT_BYTES = 8
FAILED = "the probe failed"
"""Used instead of the exception's text, which may contain bytes of a file."""
MAX_FACTS = 200_000
"""Limit per directory, and per machine probe."""


class ProbeWorker:
    """Run probe modules on request."""

    def __init__(self, job: Job) -> None:
        self._place = ProbeTarget(*cast(tuple[str, str, str], job["place"]))
        secret = cast(bytes | None, job["key"])
        self._key = Key.of(secret) if secret is not None else None

    def call(self, method: str, arguments: tuple[Any, ...]) -> Iterator[Frame]:
        frames: Iterator[Frame] = getattr(self, "do_" + method)(*arguments)
        return frames

    def close(self) -> None:
        """Do nothing: no file is open."""

    def do_machine(self, name: str) -> Iterator[Frame]:
        """Yield ("lines", facts) of a machine probe, or ("failed", b"", reason)."""
        probe = PROBES[name]
        assert isinstance(probe, MachineProbe)
        try:
            yield ("lines", _lines(machine_module(probe).facts_of(self._place.root)))
        except Exception as error:
            yield ("failed", b"", _why(error))

    def do_place(self, name: str) -> Iterator[Frame]:
        """Yield the same for an environment probe."""
        probe = PROBES[name]
        assert isinstance(probe, EnvironmentProbe)
        try:
            yield ("lines", _lines(environment_module(probe).facts_of(self._place, self._keyed)))
        except Exception as error:
            yield ("failed", b"", _why(error))

    def do_tree(self, name: str, directories: list[tuple[bytes, list[tuple[Any, ...]]]]) -> Iterator[Frame]:
        """Yield ("lines", facts) per directory, and ("failed", directory, reason) where a probe failed."""
        probe = PROBES[name]
        assert isinstance(probe, FileProbe)
        leaf = file_module(probe)
        for directory, files in directories:
            given = {name: ProbedFile(*fields) for name, *fields in files}
            try:
                yield ("lines", _lines(leaf.facts_of(directory, given, self._keyed)))
            except Exception as error:
                # This fact prevents earlier facts of the directory from looking removed.
                place = Fact(name, key_of(directory, UNREAD), FAILED, EnvPath(directory))
                yield ("lines", [fact_line(place)])
                yield ("failed", directory, _why(error))

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


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


if __name__ == "__main__":
    serve_spawned(sys.argv[1:], lambda job, shared, number: ProbeWorker(job))


# The parent side: sends requests and waits at most the timeout.
# The process starts with the first request. If a probe does not answer in time, the process is killed and a
# new one is started for the next probe.

WORKER_MODULE = "git_envhist.capture.probe_worker"
SECONDS = 5.0
"""Timeout of one probe in one capture."""


class ProbeAnswer(NamedTuple):
    """Answer to one request."""

    lines: list[bytes]
    failed: list[tuple[bytes, str]]
    """(directory, reason) of what could not be read."""
    whole: bool
    """True if the probe ran to its end."""


class ProbeProcess:
    """The process that runs all probes, started on the first request."""

    def __init__(self, how: str, job: Job, others: list[WorkerHandle]) -> None:
        self._how = worker_mode(how)
        self._job = job
        self._others = others
        self._line: WorkerHandle | None = None
        self._shared: SharedCounters | None = None
        self._asked = 0.0

    def ask(self, method: str, *arguments: object) -> None:
        """Send a request; call `answer` before the next one."""
        self._asked = time.monotonic()
        try:
            if self._line is None:
                self._line = self._make_line()
            self._line.ask(method, arguments)
        except (EnvhistError, OSError):
            # `answer` then reports that there is no process.
            self.close()

    def answer(self, seconds: float = SECONDS) -> ProbeAnswer:
        """Return the answer; wait at most `seconds` after the request."""
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
        """Kill the process."""
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
            raise EnvhistError("the probe could not be started")
        while True:
            if line.descriptor is not None and not _is_readable(line.descriptor, until):
                raise EnvhistError("the probe exceeded its timeout")
            for kind, *words in line.receive():
                if kind == FRAME:
                    yield tuple(words)
                elif kind == DONE:
                    return
                else:
                    raise EnvhistError(f"{words[0]}: {words[1]}")

    def _make_line(self) -> WorkerHandle:
        if self._how == "fork":
            return fork_worker(lambda: ProbeWorker(self._job), self._others)
        if self._how == "spawn":
            self._shared = SharedCounters(1)
            return spawn_worker(WORKER_MODULE, self._job, self._shared, 0)
        return InlineWorker(ProbeWorker(self._job))


def _is_readable(descriptor: int, until: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))
