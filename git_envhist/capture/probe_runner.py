"""The facts of a capture: those of the last one, as far as nothing they were read from changed, and what is read anew.

A probe of the machine is asked for its stamp when the workers begin, and for more only if that is another one; it
reads beside the scan. A probe of files is shown the directories that the workers looked into and that hold files of
its names. Where neither happens, a capture costs a stat of each source, and names the texts that stand in the store
already.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from git_envhist.capture.collect import RecordChanges, ScanResult
from git_envhist.capture.probe_worker import (
    SECONDS,
    CapturedFiles,
    ProbeProcess,
    TriggeredFile,
    compile_file_triggers,
    files_triggering_probes,
)
from git_envhist.capture.scope import is_inside_git_directory
from git_envhist.errors import EnvhistError
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass, field, once
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.trees import decode_tree
from git_envhist.paths import display_path
from git_envhist.platform import SYSTEM
from git_envhist.probes import (
    PACKAGES,
    PROBES,
    machine_leaf,
    machine_probes,
    place_leaf,
    place_probes,
    sign_leaf,
    sign_probes,
    tree_leaf,
    tree_probes,
)
from git_envhist.probes.base import EnvironmentProbe, FileProbe, MachineProbe, ProbeTarget
from git_envhist.secrets.keys import Key
from git_envhist.secrets.tokens import mask_tokens
from git_envhist.snapshots.layout import FACTS, FILE, TreeEntry
from git_envhist.snapshots.names import RESERVED
from git_envhist.snapshots.records import SUFFIX, fact_line, read_fact_text, without, write_facts
from git_envhist.workers import WorkerHandle
from git_envhist.worktree.stat_cache import CachedFacts, DirectoryRecords

if TYPE_CHECKING:
    from git_envhist.capture.collect import ScanDriver
    from git_envhist.capture.environment import KnownWritesDriver
    from git_envhist.services import Dumps


# Objects that the facts of a capture are taken with, and facts taken over from a snapshot of the same files.

HOOKS_PATH = "core.hookspath"


class Taking(Protocol):
    """The capture that is under way."""

    writer: PackWriter
    known: OwnPacks
    repository: Repository

    def begin(self, progress: None) -> ScanDriver | KnownWritesDriver: ...


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What is needed of a capture."""

    writer: PackWriter
    known: OwnPacks
    object_format: str
    how: str
    place: ProbeTarget
    key: Key | None
    lines: list[WorkerHandle]
    """Those to the workers: a process of ours must not hold them open."""


def facts_of_tree(read: Callable[[bytes], bytes], tree: str) -> dict[str, CachedFacts] | None:
    """Return the texts of a snapshot's tree; None unless the present probes would write the same."""
    kept: dict[str, CachedFacts] = {}
    try:
        oids = _fact_ids(read, tree)
        for name, probe in tree_probes().items():
            found = read_fact_text(name, read(bytes.fromhex(oids[name])))
            if found is None or found.version != probe.version:
                return None
            held = (one for one in (name, name + SUFFIX) if one in oids)
            kept.update((one, CachedFacts(probe.version, "", oids[one])) for one in held)
    except (KeyError, EnvhistError):
        return None
    return kept


def _fact_ids(read: Callable[[bytes], bytes], tree: str) -> dict[str, str]:
    oid, width = bytes.fromhex(tree), len(tree) // 2
    for wanted in (RESERVED, FACTS):
        oid = {name: below for name, _, below in decode_tree(read(oid), width)}[wanted]
    return {name.decode("ascii", "replace"): one.hex() for name, _, one in decode_tree(read(oid), width)}


def hooks_of(repository: Repository) -> str:
    """Where git looks for hooks: what is configured is meant from the top of the working tree."""
    configured = dict(repository.read_config()).get(HOOKS_PATH)
    if configured:
        return os.path.join(repository.root, os.path.expanduser(configured))
    return os.path.join(repository.common_dir, "hooks")


# Shows probes of files what changed: the directories that hold files of their names, and these files' bytes.
#
# What is said of a directory is said anew if one of these files is another one, and dropped if the directory went.
# Where nothing is known of last time, every directory counts.

BATCH = 1 << 20
"""So many bytes of files are shown at once."""


class ToldFacts(NamedTuple):
    """The facts of one probe as lines."""

    plain: list[bytes]
    sealed: list[bytes]
    """The facts of directories in which the probe read a sealed file."""


Batch = list[tuple[bytes, list[tuple[object, ...]]]]
Failures = list[tuple[bytes, str]]


class FileProbeRunner:
    """Reads for all probes of one capture."""

    def __init__(
        self,
        asking: ProbeProcess,
        files: CapturedFiles,
        merged: RecordChanges,
        records: DirectoryRecords,
        width: int,
    ) -> None:
        self._asking = asking
        self._files = files
        self._merged = merged
        self._records = records
        self._width = width

    def read(
        self, name: str, probe: FileProbe, before: ToldFacts | None
    ) -> tuple[ToldFacts | None, Failures]:
        """The lines of a probe, None where they are as `before`, and what could not be read."""
        if before is None:
            return self._ask(name, probe, self._everything(name))
        new, old = self._changed.get(name, {}), self._changed_from.get(name, {})
        touched = [path for path in {*new, *old} if _files_of(new, path) != _files_of(old, path)]
        places = {display_path(path) for path in (*touched, *self._merged.gone)}
        kept = ToldFacts(*(without(lines, places) for lines in before)) if places else before
        lines, failed = self._ask(name, probe, {path: new[path] for path in touched if path in new})
        if not any(lines) and list(map(len, kept)) == list(map(len, before)):
            return None, failed
        return ToldFacts(kept.plain + lines.plain, kept.sealed + lines.sealed), failed

    def close(self) -> None:
        """Let go of every file, and of the process that was asked."""
        self._asking.close()
        self._files.close()

    @once
    def _changed(self) -> dict[str, dict[bytes, list[TriggeredFile]]]:
        """By probe, the directories that were looked into and hold files of its concern."""
        return self._woken((path, self._records.get(path)) for path in self._merged.changed)

    @once
    def _changed_from(self) -> dict[str, dict[bytes, list[TriggeredFile]]]:
        """The same as it was before."""
        return self._woken(self._merged.before.items())

    def _everything(self, name: str) -> dict[bytes, list[TriggeredFile]]:
        return self._all.get(name, {})

    @once
    def _all(self) -> dict[str, dict[bytes, list[TriggeredFile]]]:
        return self._woken((path, self._records.get(path)) for path in self._records)

    def _woken(self, records: Iterable[tuple[bytes, object]]) -> dict[str, dict[bytes, list[TriggeredFile]]]:
        wake = compile_file_triggers(tree_probes())
        found: dict[str, dict[bytes, list[TriggeredFile]]] = {}
        for path, record in records:
            if not is_inside_git_directory(path):
                for probe, files in files_triggering_probes(record, wake, self._width).items():  # type: ignore[arg-type]
                    found.setdefault(probe, {})[path] = files
        return found

    def _ask(
        self, name: str, probe: FileProbe, directories: dict[bytes, list[TriggeredFile]]
    ) -> tuple[ToldFacts, Failures]:
        """What a probe says of some directories; an error where it takes too long."""
        lines: list[bytes] = []
        failed: Failures = []
        asked = False
        sealed: set[bytes] = set()
        for batch in self._batches(probe, directories):
            sealed.update(place for place, files in batch if any(map(_is_opened, files)))
            # The next batch is made ready while the one before is read.
            if asked:
                self._take_answer(lines, failed)
            self._asking.ask("tree", name, batch)
            asked = True
        if asked:
            self._take_answer(lines, failed)
        masked = mask_tokens(b"\n".join(lines)) if lines else b""
        told = masked.split(b"\n") if masked else []
        if not sealed:
            return ToldFacts(told, []), failed
        plain = set(without(told, sealed))
        return ToldFacts(
            [one for one in told if one in plain], [one for one in told if one not in plain]
        ), failed

    def _take_answer(self, lines: list[bytes], failed: Failures) -> None:
        answer = self._asking.answer(SECONDS)
        if not answer.whole:
            raise EnvhistError(answer.failed[0][1])
        lines += answer.lines
        failed += answer.failed

    def _batches(self, probe: FileProbe, directories: dict[bytes, list[TriggeredFile]]) -> Iterator[Batch]:
        batch: Batch = []
        size = 0
        wants = tree_leaf(probe).wants if directories else None
        for path, woken in directories.items():
            record = self._records.get(path)
            if record is None or wants is None or not wants(display_path(path)):
                continue
            files = list(self._files.show(record, woken, probe))
            batch.append((display_path(path), files))
            size += sum(map(_shown, files))
            if size >= BATCH:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def _shown(file: tuple[object, ...]) -> int:
    """How many bytes are shown of a file."""
    data, parts = file[1], file[5]
    assert isinstance(parts, tuple)
    return (len(data) if isinstance(data, bytes) else 0) + sum(len(part) for _, part in parts)


def _is_opened(file: tuple[object, ...]) -> bool:
    """Return whether a probe is shown bytes of a sealed file."""
    _, data, _, sealed, _, parts = file
    return bool(sealed) and (data is not None or bool(parts))


def _files_of(directories: dict[bytes, list[TriggeredFile]], path: bytes) -> list[tuple[bytes, bytes]]:
    return [(woken.name, woken.oid) for woken in directories.get(path, ())]


MACHINE_ROOT = "GIT_ENVHIST_MACHINE_ROOT"
"""Where the file system begins of the machine whose packages are told."""
MAX_TOLD = 3
NAMES_IN_THE_CLEAR = (
    "earlier snapshots hold the names of variables of sealed files in the clear, and with them parts of values over "
    "several lines: 'git envlog purge --variable-names' erases these names"
)


def ask_machine(taking: Taking, key: Key | None, how: str, environ: Mapping[str, str]) -> ProbeRunner:
    """Begin to take the facts of a capture that has begun; to be closed."""
    gatherer = taking.begin(None)
    repository = taking.repository
    place = ProbeTarget(environ.get(MACHINE_ROOT) or "/", repository.root, hooks_of(repository))
    means = ProbeContext(
        taking.writer, taking.known, repository.object_format, how, place, key, gatherer.lines
    )
    taker = ProbeRunner(means, gatherer.cache.facts if gatherer.cache is not None else {})
    if SYSTEM.facts:
        taker.begin()
    return taker


@dataclass(slots=True)
class ProbeRunner:
    """Takes the facts of one capture."""

    means: ProbeContext
    before: Mapping[str, CachedFacts]
    """What the snapshot says that the cache relies on."""
    kept: dict[str, CachedFacts] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    """Those that were written anew."""
    warnings: list[str] = field(default_factory=list)
    like: str | None = None
    """The tree of a snapshot that holds the very same files: what it says of them need not be read again."""
    _stamps: dict[str, str] = field(default_factory=dict)
    _asked: dict[str, ProbeProcess] = field(default_factory=dict)

    def begin(self) -> None:
        """Ask the machine what it has to be asked; the workers are at work meanwhile."""
        probes: dict[str, MachineProbe | EnvironmentProbe] = {**machine_probes(), **place_probes()}
        for name, probe in probes.items():
            try:
                self._begin(name, probe)
            except Exception as wrong:  # whatever it is: it may cost a warning and no snapshot
                self._warn(name, f"{type(wrong).__name__}: {wrong}")

    def _begin(self, name: str, probe: MachineProbe | EnvironmentProbe) -> None:
        stamp = self._stamp(probe)
        if stamp is None:
            return  # nothing is known here, and nothing said
        self._stamps[name] = stamp
        kept = self.before.get(name)
        if kept is not None and stamp and kept[:2] == (probe.version, stamp) and self._stands(kept):
            self.kept[name] = kept
            return
        asking = self._asked[name] = self._asking()
        asking.ask("machine" if isinstance(probe, MachineProbe) else "place", name)

    def _stamp(self, probe: MachineProbe | EnvironmentProbe) -> str | None:
        place = self.means.place
        if isinstance(probe, MachineProbe):
            return machine_leaf(probe).stamp(place.root)
        return place_leaf(probe).stamp(place)

    def take_machine(self) -> None:
        """Keep what the machine said, as far as it did in its time."""
        asked, self._asked = self._asked, {}
        for name, asking in asked.items():
            answer = asking.answer()
            asking.close()
            if answer.whole and not answer.failed:
                self._keep(name, self._stamps[name], _masked(answer.lines))
            else:
                self._warn(name, answer.failed[0][1])

    def take(
        self, gathered: ScanResult, merged: RecordChanges, records: DirectoryRecords, *, cached: bool
    ) -> None:
        """Keep all facts; `cached`: what was known of the directories was relied on."""
        if not SYSTEM.facts:
            return
        self.take_machine()
        self._take_signs(gathered)
        like = facts_of_tree(self._read, self.like) if self.like is not None else None
        if like is not None:
            self.kept.update(like)
            return
        self._warn_of_names()
        known = {name: self._usable(name, probe, cached) for name, probe in tree_probes().items()}
        if merged.changed or merged.gone or None in known.values():
            self._read_files(gathered, merged, records, known)
        else:
            for name, kept in known.items():
                if kept is not None:
                    self._keep_as_before(name, kept)

    def _take_signs(self, gathered: ScanResult) -> None:
        signs = [(one.path, one.detail) for one in gathered.missing]
        for name, probe in sign_probes().items():
            try:
                lines = sorted(map(fact_line, sign_leaf(probe).facts_of(signs)))
            except Exception as wrong:  # whatever it is: it may cost a warning and no snapshot
                self._warn(name, f"{type(wrong).__name__}: {wrong}")
                continue
            stamp = "\n".join(line.decode("utf-8", "surrogateescape") for line in lines) or "none"
            kept = self.before.get(name)
            if kept is not None and kept[:2] == (probe.version, stamp) and self._stands(kept):
                self.kept[name] = kept
            else:
                self._keep(name, stamp, lines)

    def take_dumps(self, dumps: Dumps) -> None:
        """Keep what the dumps of services hold: which ones there are in the clear, tables and keys sealed."""
        from git_envhist.probes.dumps import (  # loaded late: few environments have services
            FAILED,
            PROBE,
            status_of,
        )

        if self.means.key is None:
            return
        told = [status_of(dump.name, dump.told.kind) for dump in dumps.taken]
        told += [status_of(name, FAILED) for name, _ in dumps.failed]
        self._keep(PROBE, "", map(fact_line, told))
        self._seal(PROBE, [fact_line(fact) for dump in dumps.taken for fact in dump.told.facts])

    def entries(self) -> dict[bytes, TreeEntry]:
        """The texts, by their paths below the reserved name."""
        return {
            FACTS + b"/" + name.encode("ascii"): (b"", FILE, bytes.fromhex(kept.oid))
            for name, kept in self.kept.items()
        }

    def package_texts(self) -> dict[str, str]:
        """The ids of what is told of the machine's packages: with the content they are what a snapshot is of."""
        self.take_machine()
        return {
            name: kept.oid
            for name, kept in self.kept.items()
            if name in PROBES and PROBES[name].kind == PACKAGES and isinstance(PROBES[name], MachineProbe)
        }

    def text(self, name: str, oid: str) -> bytes:
        """A text of this capture, or of a snapshot before it."""
        kept = self.kept.get(name)
        if kept is not None and kept.oid == oid and name in self.texts:
            return self.texts[name]
        return self.means.known.read(bytes.fromhex(oid))[1]

    def close(self) -> None:
        """End what is still at work."""
        for asking in self._asked.values():
            asking.close()

    def _read_files(
        self,
        gathered: ScanResult,
        merged: RecordChanges,
        records: DirectoryRecords,
        known: Mapping[str, CachedFacts | None],
    ) -> None:
        from git_envhist.capture.probe_worker import CapturedFiles  # loaded late: where files changed

        means = self.means
        files = CapturedFiles(gathered.objects, gathered.packs, means.object_format, self._read, means.key)
        width = 20 if means.object_format == "sha1" else 32
        reader = FileProbeRunner(self._asking(), files, merged, records, width)
        try:
            for name, probe in tree_probes().items():
                self._read_probe(reader, name, probe, known[name])
        finally:
            reader.close()

    def _read_probe(
        self, reader: FileProbeRunner, name: str, probe: FileProbe, kept: CachedFacts | None
    ) -> None:
        try:
            lines, failed = reader.read(name, probe, self._told_before(name, kept))
        except (EnvhistError, OSError, KeyError) as error:
            self._warn(name, str(error))
            return
        self._tell_failures(name, failed)
        if lines is None and kept is not None:
            self._keep_as_before(name, kept)
        elif lines is None:
            self._keep(name, "", [])
        else:
            self._keep(name, "", lines.plain)
            self._seal(name, lines.sealed)

    def _told_before(self, name: str, kept: CachedFacts | None) -> ToldFacts | None:
        """The facts of the snapshot before; None where they cannot be read."""
        plain = read_fact_text(name, self.text(name, kept.oid)) if kept is not None else None
        if plain is None:
            return None

        twin = self.before.get(name + SUFFIX)
        if twin is None:
            return ToldFacts(plain.lines, [])
        from git_envhist.snapshots.sealed_facts import open_facts  # loaded late: where such a file is sealed

        key = self.means.key
        sealed = open_facts(
            lambda wanted: key if key and key.id == wanted else None, name, self.text(name + SUFFIX, twin.oid)
        )
        return None if sealed is None else ToldFacts(plain.lines, sealed.lines)

    def _warn_of_names(self) -> None:
        """Warn once of names that an earlier version stored without sealing them."""
        before = self.before.get("env")
        if before is None or before.version >= PROBES["env"].version or not self._stands(before):
            return
        told = read_fact_text("env", self.text("env", before.oid))
        if told is not None and told.lines:
            self.warnings.append(NAMES_IN_THE_CLEAR)

    def _usable(self, name: str, probe: FileProbe, cached: bool) -> CachedFacts | None:
        kept = self.before.get(name) if cached else None
        if kept is None or kept.version != probe.version or not self._stands(kept):
            return None
        twin = self.before.get(name + SUFFIX)
        return kept if twin is None or self._stands(twin) else None

    def _stands(self, kept: CachedFacts) -> bool:
        try:
            return bytes.fromhex(kept.oid) in self.means.known
        except ValueError:
            return False

    def _keep_as_before(self, name: str, kept: CachedFacts) -> None:
        self.kept[name] = kept
        twin = self.before.get(name + SUFFIX)
        if twin is not None:
            self.kept[name + SUFFIX] = twin

    def _seal(self, name: str, lines: list[bytes]) -> None:
        key = self.means.key
        if not lines or key is None:
            return  # without a key no sealed file was opened
        from git_envhist.snapshots.sealed_facts import seal_facts  # loaded late: where such a file is sealed

        version = PROBES[name].version
        text = self.texts[name + SUFFIX] = seal_facts(key, name, version, lines)
        self.kept[name + SUFFIX] = CachedFacts(version, "", self.means.writer.add(b"blob", text).hex())

    def _keep(self, name: str, stamp: str, lines: Iterable[bytes]) -> None:
        version = PROBES[name].version
        text = self.texts[name] = write_facts(name, version, lines)
        self.kept[name] = CachedFacts(version, stamp, self.means.writer.add(b"blob", text).hex())

    def _read(self, oid: bytes) -> bytes:
        return self.means.known.read(oid)[1]

    def _asking(self) -> ProbeProcess:
        from git_envhist.capture.probe_worker import ProbeProcess  # loaded late: while the workers walk

        means = self.means
        job: dict[str, object] = {
            "place": tuple(means.place),
            "key": means.key.material if means.key else None,
        }
        return ProbeProcess(means.how, job, means.lines)

    def _warn(self, name: str, why: str) -> None:
        self.warnings.append(f"no facts of '{name}' in this snapshot: {why}")

    def _tell_failures(self, name: str, failed: list[tuple[bytes, str]]) -> None:
        for directory, why in failed[:MAX_TOLD]:
            place = directory.decode("utf-8", "backslashreplace")
            self.warnings.append(f"no facts of '{place}' ({name}): {why}")
        if len(failed) > MAX_TOLD:
            self.warnings.append(f"no facts of {len(failed) - MAX_TOLD:,} more directories ({name})")


def _masked(lines: list[bytes]) -> list[bytes]:
    masked = mask_tokens(b"\n".join(lines))
    return masked.split(b"\n") if masked else []
