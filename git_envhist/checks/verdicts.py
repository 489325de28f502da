"""Says of a moment what a check came to: masked, its output sealed, signed, in the notes and in the private list."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import NamedTuple

from git_envhist.capture.known_verdicts import LoggedVerdict, VerdictLog, circumstances_of
from git_envhist.config import Settings
from git_envhist.consent import approve
from git_envhist.errors import EnvhistError, SealingError, UsageError, in_words
from git_envhist.git.config import current_actor, current_time, signature
from git_envhist.git.repository import Repository
from git_envhist.history.timeline import own_verdict
from git_envhist.lazy import dataclass, replace
from git_envhist.model import NoteRecord, Snapshot, SnapshotId, Trigger, Verdict, VerdictStatus
from git_envhist.secrets.keys import Key, KeyRing
from git_envhist.secrets.masking import mask_text
from git_envhist.secrets.seal import SealingKey, seal, unseal
from git_envhist.snapshots.message import AUTHOR, signed
from git_envhist.snapshots.publish import add_note_records
from git_envhist.snapshots.records import verdict_record
from git_envhist.worktree.timeline_name import ensure_timeline

# Which command checks an environment (pure): one that was typed, configured, or recorded here by this user.

Typed = Callable[[str], str | None]
"""The words in which a note tells a command -> the command as it was typed here."""
HINT = "git envlog verify -- <command>; for good: git config envhist.verify '<command>'"


class NoCheck(UsageError):
    """Nobody said what is to be run."""

    code = "no-check"


def check_of_capture(given: str | None, settings: Settings, trigger: Trigger) -> str | None:
    """Return the check that a capture runs; None for none. An empty `given` is none, whatever is configured."""
    if given is not None:
        return given or None
    return settings.verify if trigger.value in settings.verify_on else None


def check_to_run(given: str | None, settings: Settings, snapshot: Snapshot | None, typed: Typed) -> str:
    """The check of a moment that somebody wants to be checked."""
    found = given or settings.verify or (recorded_check(snapshot, typed) if snapshot else None)
    if found is None:
        raise NoCheck("which check is to be run?", hint=HINT)
    return found


def recorded_check(snapshot: Snapshot, typed: Typed) -> str | None:
    """The check that a moment was judged by, as it was typed; None where that was not here."""
    verdict = own_verdict(snapshot) or snapshot.verdict
    # Words in a note are somebody's, signed or not: only what was typed or configured here is ever run again.
    if verdict is None or verdict.claimed_by is not None:
        return None
    return typed(verdict.command)


# What the end of a command says of the environment it ran in (pure): by its status alone, never by its words.

CANNOT_SAY = range(125, 128)
"""125 is how a test says that it cannot tell, as in `git bisect run`; 126 and 127 are a shell's: it could not run."""
BY_SIGNAL = range(129, 193)
"""How a shell tells of a program that a signal ended."""
NOT_JUDGED, NOT_RUN = 125, 127


class CommandExit(NamedTuple):
    """How a command ended."""

    exit_code: int | None = None
    signal: int | None = None
    duration_ms: int | None = None
    tail: bytes = b""
    too_long: bool = False
    """It was ended because it took longer than it may."""


def status_of(ended: CommandExit) -> VerdictStatus:
    """Pass is 0; an error is whatever says nothing about the environment; all else is a failure."""
    code = ended.exit_code
    if code is None or ended.too_long or ended.signal is not None:
        return VerdictStatus.ERROR
    if code in CANNOT_SAY or code in BY_SIGNAL:
        return VerdictStatus.ERROR
    return VerdictStatus.FAIL if code else VerdictStatus.PASS


def signal_of(ended: CommandExit) -> int | None:
    """The signal that ended it, also where a shell tells of that."""
    if ended.signal is None and ended.exit_code in BY_SIGNAL:
        return (ended.exit_code or 0) - 128
    return ended.signal


def exit_status(verdict: Verdict) -> int:
    """The status of the check itself, as a shell would have it."""
    if verdict.exit_code is not None:
        return verdict.exit_code
    if verdict.signal is not None:
        return 128 + verdict.signal
    return NOT_RUN


def answer_status(verdict: Verdict) -> int:
    """The status of a question about it: 0 it passes, 1 it fails, 125 it cannot be judged."""
    known = {VerdictStatus.PASS: 0, VerdictStatus.FAIL: 1}
    return known.get(verdict.status, NOT_JUDGED)


# The end of what a check wrote: kept in the notes, sealed, and opened for whoever has the key.

OUTPUT = b"output"
CLOSED = "(sealed with a key that is not here)"


def seal_output(verdict: Verdict, snapshot: SnapshotId, key: SealingKey) -> str:
    """The end of the output as a note may hold it: it opens for this moment only."""
    if not verdict.output_tail:
        return ""
    plain = verdict.output_tail.encode("utf-8", "surrogateescape")
    return base64.b64encode(seal(key, snapshot.encode("ascii"), OUTPUT, plain)).decode("ascii")


def with_output(snapshot: Snapshot, find_key: Callable[[str], SealingKey | None]) -> Snapshot:
    """The snapshot, with the output of its checks opened as far as the keys are here."""
    if not any(verdict.sealed_output for verdict in snapshot.verdicts):
        return snapshot
    return replace(
        snapshot, verdicts=tuple(_opened(verdict, snapshot, find_key) for verdict in snapshot.verdicts)
    )


def _opened(verdict: Verdict, snapshot: Snapshot, find_key: Callable[[str], SealingKey | None]) -> Verdict:
    if not verdict.sealed_output:
        return verdict
    try:
        sealed = base64.b64decode(verdict.sealed_output, validate=True)
        plain = unseal(find_key, snapshot.id.encode("ascii"), OUTPUT, sealed)
    except (SealingError, ValueError):
        return replace(verdict, output_tail=CLOSED)
    return replace(verdict, output_tail=plain.decode("utf-8", "replace"))


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
            add_note_records(self.repository, self._own_timeline, snapshot, (note,), line)
        except (EnvhistError, OSError) as error:
            return [*warnings, f"the verdict could not be noted, the snapshot is whole: {in_words(error)}"]
        return [*warnings, *self._remember(snapshot, verdict, typed)]

    def _own_timeline(self) -> str:
        return ensure_timeline(self.repository, self.settings)

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
