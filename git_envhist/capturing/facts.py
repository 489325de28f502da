"""The facts of a capture: those of the last one, as far as nothing they were read from changed, and what is read anew.

A probe of the machine is asked for its stamp when the workers begin, and for more only if that is another one; it
reads beside the scan. A probe of files is shown the directories that the workers looked into and that hold files of
its names. Where neither happens, a capture costs a stat of each source, and names the texts that stand in the store
already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from git_envhist.capture.known import DirectoryRecords
from git_envhist.capture.statcache import CachedFacts
from git_envhist.capture.tokens import mask_tokens
from git_envhist.capturing.factmeans import ProbeContext, Taking, facts_of_tree, hooks_of
from git_envhist.capturing.gather import ScanResult
from git_envhist.capturing.merge import RecordChanges
from git_envhist.errors import EnvhistError
from git_envhist.facts import (
    PACKAGES,
    PROBES,
    machine_leaf,
    machine_probes,
    place_leaf,
    place_probes,
    sign_leaf,
    sign_probes,
    tree_probes,
)
from git_envhist.facts.probe import EnvironmentProbe, FileProbe, MachineProbe, ProbeTarget
from git_envhist.store.facts import SUFFIX, fact_line, read_fact_text, write_facts
from git_envhist.store.keys import Key
from git_envhist.store.layout import FACTS
from git_envhist.store.snapshots import FILE, TreeEntry
from git_envhist.system import SYSTEM
from git_envhist.values import dataclass, field

if TYPE_CHECKING:
    from git_envhist.capturing.factasking import ProbeProcess
    from git_envhist.capturing.factreading import FileProbeRunner, ToldFacts
    from git_envhist.services.states import Dumps

MACHINE_ROOT = "GIT_ENVHIST_MACHINE_ROOT"
"""Where the file system begins of the machine whose packages are told."""
MOST_TOLD = 3
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
        from git_envhist.facts.dumps import (  # loaded late: hardly any capture has one
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
        from git_envhist.capturing.factfiles import CapturedFiles  # loaded late: where files changed
        from git_envhist.capturing.factreading import FileProbeRunner  # loaded late: likewise

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
        from git_envhist.capturing.factreading import ToldFacts  # loaded late: where files changed

        twin = self.before.get(name + SUFFIX)
        if twin is None:
            return ToldFacts(plain.lines, [])
        from git_envhist.capturing.factsealing import open_facts  # loaded late: where such a file is sealed

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
        from git_envhist.capturing.factsealing import seal_facts  # loaded late: where such a file is sealed

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
        from git_envhist.capturing.factasking import (
            ProbeProcess,  # loaded late: where there is something to ask
        )

        means = self.means
        job: dict[str, object] = {
            "place": tuple(means.place),
            "key": means.key.material if means.key else None,
        }
        return ProbeProcess(means.how, job, means.lines)

    def _warn(self, name: str, why: str) -> None:
        self.warnings.append(f"no facts of '{name}' in this snapshot: {why}")

    def _tell_failures(self, name: str, failed: list[tuple[bytes, str]]) -> None:
        for directory, why in failed[:MOST_TOLD]:
            place = directory.decode("utf-8", "backslashreplace")
            self.warnings.append(f"no facts of '{place}' ({name}): {why}")
        if len(failed) > MOST_TOLD:
            self.warnings.append(f"no facts of {len(failed) - MOST_TOLD:,} more directories ({name})")


def _masked(lines: list[bytes]) -> list[bytes]:
    masked = mask_tokens(b"\n".join(lines))
    return masked.split(b"\n") if masked else []
