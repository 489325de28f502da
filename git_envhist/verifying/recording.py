"""Says of a moment what a check came to: masked, its output sealed, signed, in the notes and in the private list."""

from __future__ import annotations

from collections.abc import Mapping

from git_envhist.capture.masking import mask_text
from git_envhist.capturing.annotating import add_note_records
from git_envhist.capturing.attendance import approve
from git_envhist.capturing.identity import current_actor, current_time, signature
from git_envhist.errors import EnvhistError, SealingError, in_words
from git_envhist.model import NoteRecord, Snapshot, Verdict
from git_envhist.settings import Settings
from git_envhist.store.keys import Key, KeyRing
from git_envhist.store.records import verdict_record
from git_envhist.store.repository import Repository
from git_envhist.store.signatures import AUTHOR, signed
from git_envhist.values import dataclass, replace
from git_envhist.verifying.carried import circumstances_of
from git_envhist.verifying.ledger import LoggedVerdict, VerdictLog
from git_envhist.verifying.outcome import CommandExit, signal_of, status_of
from git_envhist.verifying.outputs import seal_output


@dataclass(frozen=True, slots=True)
class VerdictWriter:
    """Whose notes they are."""

    repository: Repository
    settings: Settings
    keys: KeyRing
    environ: Mapping[str, str]

    @property
    def ledger(self) -> VerdictLog:
        return VerdictLog(self.repository.common_state)

    def verdict(self, command: str, ended: CommandExit, before: str, after: str | None) -> Verdict:
        """What a command came to, in words that may be kept."""
        return Verdict(
            status_of(ended),
            mask_text(command),
            current_time(self.repository.git, self.environ),
            ended.exit_code,
            signal_of(ended),
            ended.duration_ms,
            mask_text(ended.tail.decode("utf-8", "replace")),
            before,
            after,
            timed_out=ended.too_long,
        )

    def record(self, snapshot: Snapshot, verdict: Verdict, typed: str) -> list[str]:
        """Say it of a moment; what could not be kept, in words."""
        warnings: list[str] = []
        key = self._key(warnings)
        sealed = seal_output(verdict, snapshot.id, key) if key is not None else ""
        note = verdict_record(replace(verdict, sealed_output=sealed))
        actor = current_actor(self.settings, self.environ)
        note = NoteRecord(note.kind, note.at, {**note.fields, AUTHOR: mask_text(actor.name)})
        if key is not None:
            note = signed(note, snapshot.id, key)
        line = signature(actor, verdict.at)
        try:
            add_note_records(self.repository, self.settings, snapshot, (note,), line)
        except (EnvhistError, OSError) as error:
            return [*warnings, f"the verdict could not be noted, the snapshot is whole: {in_words(error)}"]
        return [*warnings, *self._remember(snapshot, verdict, typed)]

    def _key(self, warnings: list[str]) -> Key | None:
        try:
            return self.keys.current()
        except SealingError as error:
            warnings.append(f"the verdict is not signed, and its output not kept: {in_words(error)}")
            return None

    def _remember(self, snapshot: Snapshot, verdict: Verdict, typed: str) -> list[str]:
        approve(self.environ, self.repository.common_dir, typed)
        try:
            facts, services = circumstances_of(self.repository.git, snapshot.tree)
            self.ledger.add(
                LoggedVerdict(snapshot.id, verdict.tree_before or "", facts, typed, verdict, services)
            )
        except (EnvhistError, OSError) as error:
            return [f"an equal environment will not be recognised: {in_words(error)}"]
        return []
