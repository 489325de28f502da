"""Collect the facts of a capture: reuse texts with unchanged sources, run the other probes.

A machine probe is asked for its stamp when the workers start, and is run in parallel to the scan only if the
stamp changed. A file probe gets the scanned directories that contain files matching its patterns. If nothing
changed, a capture costs one stat per source and refers to texts already stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from git_envhist.capture.file_triggers import TriggeredFile, compile_file_triggers, files_triggering_probes
from git_envhist.capture.parallel_scan import RecordChanges, ScanResult
from git_envhist.capture.probe_worker import SECONDS, CapturedFiles, ProbeProcess
from git_envhist.capture.scope import is_inside_git_directory
from git_envhist.errors import EnvhistError
from git_envhist.git.repository import hooks_of
from git_envhist.lazy import dataclass, field, once
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.trees import decode_tree
from git_envhist.paths import display_path
from git_envhist.platform import SYSTEM
from git_envhist.probes import (
    PACKAGES,
    PROBES,
    capture_module,
    capture_probes,
    environment_module,
    environment_probes,
    file_module,
    file_probes,
    machine_module,
    machine_probes,
)
from git_envhist.probes.base import EnvironmentProbe, FileProbe, MachineProbe, ProbeTarget
from git_envhist.secrets.keys import Key
from git_envhist.secrets.tokens import mask_tokens
from git_envhist.snapshots.fact_text import SUFFIX, fact_line, read_fact_text, without_places, write_facts
from git_envhist.snapshots.layout import FACTS, FILE, TreeEntry
from git_envhist.snapshots.stored_names import RESERVED
from git_envhist.workers import WorkerHandle
from git_envhist.worktree.stat_cache import CachedFacts, DirectoryRecords

if TYPE_CHECKING:
    from git_envhist.capture.environment_trees import TreeCapture
    from git_envhist.service_dumps import Dumps


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """Parts of the running capture that probes use."""

    writer: PackWriter
    known: OwnPacks
    object_format: str
    how: str
    place: ProbeTarget
    key: Key | None
    lines: list[WorkerHandle]
    """Connections to the workers; a probe process must close its copies."""


def facts_of_tree(read: Callable[[bytes], bytes], tree: str) -> dict[str, CachedFacts] | None:
    """Return the fact texts of a snapshot; None unless the current probe versions would write the same."""
    kept: dict[str, CachedFacts] = {}
    try:
        oids = _fact_ids(read, tree)
        for name, probe in file_probes().items():
            found = read_fact_text(name, read(bytes.fromhex(oids[name])))
            if found is None or found.version != probe.version:
                return None
            names = (one for one in (name, name + SUFFIX) if one in oids)
            kept.update((one, CachedFacts(probe.version, "", oids[one])) for one in names)
    except (KeyError, EnvhistError):
        return None
    return kept


def _fact_ids(read: Callable[[bytes], bytes], tree: str) -> dict[str, str]:
    oid, width = bytes.fromhex(tree), len(tree) // 2
    for wanted in (RESERVED, FACTS):
        oid = {name: below for name, _, below in decode_tree(read(oid), width)}[wanted]
    return {name.decode("ascii", "replace"): one.hex() for name, _, one in decode_tree(read(oid), width)}


# File probes see the changed directories that contain files matching their patterns.
# The facts of a directory are replaced when one of these files changed, and removed when the directory is
# gone. Without facts of a snapshot before, every directory is sent.

BATCH = 1 << 20
"""Bytes of files sent to a probe in one request."""


class ProbeFacts(NamedTuple):
    """The facts of one probe as lines."""

    plain: list[bytes]
    sealed: list[bytes]
    """Facts of directories in which the probe read a sealed file."""


Batch = list[tuple[bytes, list[tuple[object, ...]]]]
Failures = list[tuple[bytes, str]]


class FileProbeRunner:
    """Run the file probes of one capture."""

    def __init__(
        self,
        process: ProbeProcess,
        files: CapturedFiles,
        merged: RecordChanges,
        records: DirectoryRecords,
        width: int,
    ) -> None:
        self._make_process = process
        self._files = files
        self._merged = merged
        self._records = records
        self._width = width

    def read(
        self, name: str, probe: FileProbe, before: ProbeFacts | None
    ) -> tuple[ProbeFacts | None, Failures]:
        """Return the lines of a probe and its failures; the lines are None if they are the same as `before`."""
        if before is None:
            return self._ask(name, probe, self._everything(name))
        new, old = self._changed.get(name, {}), self._changed_from.get(name, {})
        touched = [path for path in {*new, *old} if _files_of(new, path) != _files_of(old, path)]
        places = {display_path(path) for path in (*touched, *self._merged.gone)}
        kept = ProbeFacts(*(without_places(lines, places) for lines in before)) if places else before
        lines, failed = self._ask(name, probe, {path: new[path] for path in touched if path in new})
        if not any(lines) and list(map(len, kept)) == list(map(len, before)):
            return None, failed
        return ProbeFacts(kept.plain + lines.plain, kept.sealed + lines.sealed), failed

    def close(self) -> None:
        """Close all files and the probe process."""
        self._make_process.close()
        self._files.close()

    @once
    def _changed(self) -> dict[str, dict[bytes, list[TriggeredFile]]]:
        """Scanned directories that contain matching files, by probe."""
        return self._triggered((path, self._records.get(path)) for path in self._merged.changed)

    @once
    def _changed_from(self) -> dict[str, dict[bytes, list[TriggeredFile]]]:
        """The same directories as recorded before."""
        return self._triggered(self._merged.before.items())

    def _everything(self, name: str) -> dict[bytes, list[TriggeredFile]]:
        return self._all.get(name, {})

    @once
    def _all(self) -> dict[str, dict[bytes, list[TriggeredFile]]]:
        return self._triggered((path, self._records.get(path)) for path in self._records)

    def _triggered(
        self, records: Iterable[tuple[bytes, object]]
    ) -> dict[str, dict[bytes, list[TriggeredFile]]]:
        triggers = compile_file_triggers(file_probes())
        found: dict[str, dict[bytes, list[TriggeredFile]]] = {}
        for path, record in records:
            if not is_inside_git_directory(path):
                for probe, files in files_triggering_probes(record, triggers, self._width).items():  # type: ignore[arg-type]
                    found.setdefault(probe, {})[path] = files
        return found

    def _ask(
        self, name: str, probe: FileProbe, directories: dict[bytes, list[TriggeredFile]]
    ) -> tuple[ProbeFacts, Failures]:
        """Return the lines of a probe about directories. Raise EnvhistError if it exceeds its timeout."""
        lines: list[bytes] = []
        failed: Failures = []
        pending = False
        sealed: set[bytes] = set()
        for batch in self._batches(probe, directories):
            sealed.update(place for place, files in batch if any(map(_is_unsealed, files)))
            # Prepare this batch while the probe reads the one before.
            if pending:
                self._receive_answer(lines, failed)
            self._make_process.ask("tree", name, batch)
            pending = True
        if pending:
            self._receive_answer(lines, failed)
        masked = mask_tokens(b"\n".join(lines)) if lines else b""
        facts = masked.split(b"\n") if masked else []
        if not sealed:
            return ProbeFacts(facts, []), failed
        plain = set(without_places(facts, sealed))
        return ProbeFacts(
            [one for one in facts if one in plain], [one for one in facts if one not in plain]
        ), failed

    def _receive_answer(self, lines: list[bytes], failed: Failures) -> None:
        answer = self._make_process.answer(SECONDS)
        if not answer.whole:
            raise EnvhistError(answer.failed[0][1])
        lines += answer.lines
        failed += answer.failed

    def _batches(self, probe: FileProbe, directories: dict[bytes, list[TriggeredFile]]) -> Iterator[Batch]:
        batch: Batch = []
        size = 0
        wants = file_module(probe).wants if directories else None
        for path, triggered in directories.items():
            record = self._records.get(path)
            if record is None or wants is None or not wants(display_path(path)):
                continue
            files = list(self._files.show(record, triggered, probe))
            batch.append((display_path(path), files))
            size += sum(map(_shown_bytes, files))
            if size >= BATCH:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def _shown_bytes(file: tuple[object, ...]) -> int:
    """Return the number of bytes of a file that are sent to the probe."""
    data, parts = file[1], file[5]
    assert isinstance(parts, tuple)
    return (len(data) if isinstance(data, bytes) else 0) + sum(len(part) for _, part in parts)


def _is_unsealed(file: tuple[object, ...]) -> bool:
    """Return whether a probe gets bytes of a sealed file."""
    _, data, _, sealed, _, parts = file
    return bool(sealed) and (data is not None or bool(parts))


def _files_of(directories: dict[bytes, list[TriggeredFile]], path: bytes) -> list[tuple[bytes, bytes]]:
    return [(triggered.name, triggered.oid) for triggered in directories.get(path, ())]


MACHINE_ROOT = "GIT_ENVHIST_MACHINE_ROOT"
"""Environment variable: root of the file system to list packages of."""
MAX_WARNINGS = 3
NAMES_IN_THE_CLEAR = (
    "earlier snapshots contain unsealed names of variables of sealed files, and parts of values that span "
    "several lines: run 'git envlog purge --variable-names' to erase these names"
)


def start_probes(capture: TreeCapture, key: Key | None, how: str, environ: Mapping[str, str]) -> ProbeRunner:
    """Start to collect the facts of a capture that has started; the caller closes the runner."""
    driver = capture.begin(None)
    repository = capture.repository
    place = ProbeTarget(environ.get(MACHINE_ROOT) or "/", repository.root, hooks_of(repository))
    context = ProbeContext(
        writer=capture.writer,
        known=capture.known,
        object_format=repository.object_format,
        how=how,
        place=place,
        key=key,
        lines=driver.lines,
    )
    runner = ProbeRunner(context, driver.cache.facts if driver.cache is not None else {})
    if SYSTEM.facts:
        runner.begin()
    return runner


@dataclass(slots=True)
class ProbeRunner:
    """Collect the facts of one capture."""

    context: ProbeContext
    before: Mapping[str, CachedFacts]
    """Facts of the snapshot that the stat cache belongs to."""
    kept: dict[str, CachedFacts] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    """Texts written by this capture."""
    warnings: list[str] = field(default_factory=list)
    same_files_tree: str | None = None
    """Tree of a snapshot with the same files; its facts are reused."""
    _stamps: dict[str, str] = field(default_factory=dict)
    _processes: dict[str, ProbeProcess] = field(default_factory=dict)

    def begin(self) -> None:
        """Start the probes of the machine; they run in parallel to the workers."""
        probes: dict[str, MachineProbe | EnvironmentProbe] = {**machine_probes(), **environment_probes()}
        for name, probe in probes.items():
            try:
                self._begin(name, probe)
            except Exception as wrong:  # a probe may fail in any way; that costs a warning, not the snapshot
                self._warn(name, f"{type(wrong).__name__}: {wrong}")

    def _begin(self, name: str, probe: MachineProbe | EnvironmentProbe) -> None:
        stamp = self._stamp(probe)
        if stamp is None:
            return  # the probe cannot read anything on this system
        self._stamps[name] = stamp
        kept = self.before.get(name)
        if kept is not None and stamp and kept[:2] == (probe.version, stamp) and self._is_stored(kept):
            self.kept[name] = kept
            return
        process = self._processes[name] = self._make_process()
        process.ask("machine" if isinstance(probe, MachineProbe) else "place", name)

    def _stamp(self, probe: MachineProbe | EnvironmentProbe) -> str | None:
        place = self.context.place
        if isinstance(probe, MachineProbe):
            return machine_module(probe).stamp(place.root)
        return environment_module(probe).stamp(place)

    def finish_machine_probes(self) -> None:
        """Store the results of machine probes that answered in time."""
        pending, self._processes = self._processes, {}
        for name, process in pending.items():
            answer = process.answer()
            process.close()
            if answer.whole and not answer.failed:
                self._keep(name, self._stamps[name], _masked(answer.lines))
            else:
                self._warn(name, answer.failed[0][1])

    def collect(
        self, scan_result: ScanResult, merged: RecordChanges, records: DirectoryRecords, *, cached: bool
    ) -> None:
        """Collect all facts; `cached` is true if the records of the stat cache were used."""
        if not SYSTEM.facts:
            return
        self.finish_machine_probes()
        self._run_sign_probes(scan_result)
        same_files_tree = (
            facts_of_tree(self._read, self.same_files_tree) if self.same_files_tree is not None else None
        )
        if same_files_tree is not None:
            self.kept.update(same_files_tree)
            return
        self._warn_of_names()
        known = {name: self._usable(name, probe, cached) for name, probe in file_probes().items()}
        if merged.changed or merged.gone or None in known.values():
            self._read_files(scan_result, merged, records, known)
        else:
            for name, kept in known.items():
                if kept is not None:
                    self._keep_as_before(name, kept)

    def _run_sign_probes(self, scan_result: ScanResult) -> None:
        signs = [(one.path, one.detail) for one in scan_result.missing]
        for name, probe in capture_probes().items():
            try:
                lines = sorted(map(fact_line, capture_module(probe).facts_of(signs)))
            except Exception as wrong:  # a probe may fail in any way; that costs a warning, not the snapshot
                self._warn(name, f"{type(wrong).__name__}: {wrong}")
                continue
            stamp = "\n".join(line.decode("utf-8", "surrogateescape") for line in lines) or "none"
            kept = self.before.get(name)
            if kept is not None and kept[:2] == (probe.version, stamp) and self._is_stored(kept):
                self.kept[name] = kept
            else:
                self._keep(name, stamp, lines)

    def add_dumps(self, dumps: Dumps) -> None:
        """Store what service dumps contain: the services unsealed, tables and keys sealed."""
        from git_envhist.probes.dumps import (  # loaded late: few environments have services
            FAILED,
            PROBE,
            status_of,
        )

        if self.context.key is None:
            return
        facts = [status_of(dump.name, dump.contents.kind) for dump in dumps.taken]
        facts += [status_of(name, FAILED) for name, _ in dumps.failed]
        self._keep(PROBE, "", map(fact_line, facts))
        self._seal(PROBE, [fact_line(fact) for dump in dumps.taken for fact in dump.contents.facts])

    def entries(self) -> dict[bytes, TreeEntry]:
        """Return the tree entries of the fact texts."""
        return {
            FACTS + b"/" + name.encode("ascii"): (b"", FILE, bytes.fromhex(kept.oid))
            for name, kept in self.kept.items()
        }

    def package_texts(self) -> dict[str, str]:
        """Return the blob ids of the machine's package facts."""
        self.finish_machine_probes()
        return {
            name: kept.oid
            for name, kept in self.kept.items()
            if name in PROBES and PROBES[name].kind == PACKAGES and isinstance(PROBES[name], MachineProbe)
        }

    def text(self, name: str, oid: str) -> bytes:
        """Return a fact text of this capture or of an earlier snapshot."""
        kept = self.kept.get(name)
        if kept is not None and kept.oid == oid and name in self.texts:
            return self.texts[name]
        return self.context.known.read(bytes.fromhex(oid))[1]

    def close(self) -> None:
        """End all running probe processes."""
        for process in self._processes.values():
            process.close()

    def _read_files(
        self,
        scan_result: ScanResult,
        merged: RecordChanges,
        records: DirectoryRecords,
        known: Mapping[str, CachedFacts | None],
    ) -> None:
        from git_envhist.capture.probe_worker import CapturedFiles  # loaded late: only if files changed

        context = self.context
        files = CapturedFiles(
            scan_result.objects, scan_result.packs, context.object_format, self._read, context.key
        )
        width = 20 if context.object_format == "sha1" else 32
        reader = FileProbeRunner(self._make_process(), files, merged, records, width)
        try:
            for name, probe in file_probes().items():
                self._read_probe(reader, name, probe, known[name])
        finally:
            reader.close()

    def _read_probe(
        self, reader: FileProbeRunner, name: str, probe: FileProbe, kept: CachedFacts | None
    ) -> None:
        try:
            lines, failed = reader.read(name, probe, self._facts_before(name, kept))
        except (EnvhistError, OSError, KeyError) as error:
            self._warn(name, str(error))
            return
        self._warn_of_failures(name, failed)
        if lines is None and kept is not None:
            self._keep_as_before(name, kept)
        elif lines is None:
            self._keep(name, "", [])
        else:
            self._keep(name, "", lines.plain)
            self._seal(name, lines.sealed)

    def _facts_before(self, name: str, kept: CachedFacts | None) -> ProbeFacts | None:
        """Return the facts of the snapshot before; None if they cannot be read."""
        plain = read_fact_text(name, self.text(name, kept.oid)) if kept is not None else None
        if plain is None:
            return None

        sealed_text = self.before.get(name + SUFFIX)
        if sealed_text is None:
            return ProbeFacts(plain.lines, [])
        from git_envhist.snapshots.sealed_facts import open_facts  # loaded late: only if a file is sealed

        key = self.context.key
        sealed = open_facts(
            lambda wanted: key if key and key.id == wanted else None,
            name,
            self.text(name + SUFFIX, sealed_text.oid),
        )
        return None if sealed is None else ProbeFacts(plain.lines, sealed.lines)

    def _warn_of_names(self) -> None:
        """Warn once about variable names that an earlier version stored unsealed."""
        before = self.before.get("env")
        if before is None or before.version >= PROBES["env"].version or not self._is_stored(before):
            return
        facts = read_fact_text("env", self.text("env", before.oid))
        if facts is not None and facts.lines:
            self.warnings.append(NAMES_IN_THE_CLEAR)

    def _usable(self, name: str, probe: FileProbe, cached: bool) -> CachedFacts | None:
        kept = self.before.get(name) if cached else None
        if kept is None or kept.version != probe.version or not self._is_stored(kept):
            return None
        sealed_text = self.before.get(name + SUFFIX)
        return kept if sealed_text is None or self._is_stored(sealed_text) else None

    def _is_stored(self, kept: CachedFacts) -> bool:
        try:
            return bytes.fromhex(kept.oid) in self.context.known
        except ValueError:
            return False

    def _keep_as_before(self, name: str, kept: CachedFacts) -> None:
        self.kept[name] = kept
        sealed_text = self.before.get(name + SUFFIX)
        if sealed_text is not None:
            self.kept[name + SUFFIX] = sealed_text

    def _seal(self, name: str, lines: list[bytes]) -> None:
        key = self.context.key
        if not lines or key is None:
            return  # without a key no sealed file was read
        from git_envhist.snapshots.sealed_facts import seal_facts  # loaded late: only if a file is sealed

        version = PROBES[name].version
        text = self.texts[name + SUFFIX] = seal_facts(key, name, version, lines)
        self.kept[name + SUFFIX] = CachedFacts(version, "", self.context.writer.add(b"blob", text).hex())

    def _keep(self, name: str, stamp: str, lines: Iterable[bytes]) -> None:
        version = PROBES[name].version
        text = self.texts[name] = write_facts(name, version, lines)
        self.kept[name] = CachedFacts(version, stamp, self.context.writer.add(b"blob", text).hex())

    def _read(self, oid: bytes) -> bytes:
        return self.context.known.read(oid)[1]

    def _make_process(self) -> ProbeProcess:
        from git_envhist.capture.probe_worker import ProbeProcess  # loaded late: while the workers walk

        context = self.context
        job: dict[str, object] = {
            "place": tuple(context.place),
            "key": context.key.material if context.key else None,
        }
        return ProbeProcess(context.how, job, context.lines)

    def _warn(self, name: str, why: str) -> None:
        self.warnings.append(f"no facts of '{name}' in this snapshot: {why}")

    def _warn_of_failures(self, name: str, failed: list[tuple[bytes, str]]) -> None:
        for directory, why in failed[:MAX_WARNINGS]:
            place = directory.decode("utf-8", "backslashreplace")
            self.warnings.append(f"no facts of '{place}' ({name}): {why}")
        if len(failed) > MAX_WARNINGS:
            self.warnings.append(f"no facts of {len(failed) - MAX_WARNINGS:,} more directories ({name})")


def _masked(lines: list[bytes]) -> list[bytes]:
    masked = mask_tokens(b"\n".join(lines))
    return masked.split(b"\n") if masked else []
