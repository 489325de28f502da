"""Shows probes of files what changed: the directories that hold files of their names, and these files' bytes.

What is said of a directory is said anew if one of these files is another one, and dropped if the directory went. Where
nothing is known of last time, every directory counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from git_envhist.capture.descent import display_path
from git_envhist.capture.known import DirectoryRecords
from git_envhist.capture.tokens import mask_tokens
from git_envhist.capturing.factasking import SECONDS, ProbeProcess
from git_envhist.capturing.factfiles import (
    CapturedFiles,
    TriggeredFile,
    compile_file_triggers,
    files_triggering_probes,
)
from git_envhist.capturing.merge import RecordChanges
from git_envhist.capturing.stored import is_inside_git_directory
from git_envhist.errors import EnvhistError
from git_envhist.facts import tree_leaf, tree_probes
from git_envhist.facts.probe import FileProbe
from git_envhist.store.facts import without
from git_envhist.values import once

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
