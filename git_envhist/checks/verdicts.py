"""Verdicts: choose the command of a check, judge its exit, and record the result.

A verdict is masked, its output sealed, signed, and written to the snapshot's notes and to a private list of this
machine.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import NamedTuple

from git_envhist.capture.verdict_log import LoggedVerdict, VerdictLog, read_environment_digests
from git_envhist.config import Settings
from git_envhist.consent import approve_command
from git_envhist.errors import EnvhistError, SealingError, UsageError, in_words
from git_envhist.git.current_actor import current_actor, current_time, signature
from git_envhist.git.repository import Repository
from git_envhist.history.timeline import own_verdict
from git_envhist.lazy import dataclass, replace
from git_envhist.model import NoteRecord, Snapshot, SnapshotId, Trigger, Verdict, VerdictStatus
from git_envhist.secrets.keys import Key, KeyRing
from git_envhist.secrets.masking import mask_text
from git_envhist.secrets.seal import SealingKey, seal, unseal
from git_envhist.snapshots.message import AUTHOR, signed
from git_envhist.snapshots.note_records import verdict_record
from git_envhist.snapshots.publish import add_note_records
from git_envhist.worktree.timeline_name import ensure_timeline

# The command of a check (pure): typed, configured, or recorded here by this user.

Typed = Callable[[str], str | None]
"""Return the command as it was typed here, given the text in a note; None if it was not."""
HINT = "git envlog verify -- <command>; to set it permanently: git config envhist.verify '<command>'"


class NoCheck(UsageError):
    """No check is given or configured."""

    code = "no-check"


def check_of_capture(given: str | None, settings: Settings, trigger: Trigger) -> str | None:
    """Return the check that a capture runs; None for none. An empty `given` is none, whatever is configured."""
    if given is not None:
        return given or None
    return settings.verify if trigger.value in settings.verify_on else None


def check_to_run(given: str | None, settings: Settings, snapshot: Snapshot | None, typed: Typed) -> str:
    """Return the command to check a snapshot with."""
    found = given or settings.verify or (recorded_check(snapshot, typed) if snapshot else None)
    if found is None:
        raise NoCheck("no check given", hint=HINT)
    return found


def recorded_check(snapshot: Snapshot, typed: Typed) -> str | None:
    """Return the command of a snapshot's verdict as it was typed; None if it was not typed or configured here."""
    verdict = own_verdict(snapshot) or snapshot.verdict
    # A note may be written by anyone: only commands that were typed or configured here are run again.
    if verdict is None or verdict.claimed_by is not None:
        return None
    return typed(verdict.command)


# The verdict of a command (pure): by its exit status alone, never by its output.

INCONCLUSIVE = range(125, 128)
"""A test exits with 125 if it is inconclusive, as in `git bisect run`; a shell with 126 or 127 if it cannot run the
command.
"""
BY_SIGNAL = range(129, 193)
"""The exit statuses of a shell for programs killed by a signal."""
NOT_JUDGED, NOT_RUN = 125, 127


class CommandExit(NamedTuple):
    """The exit of a command."""

    exit_code: int | None = None
    signal: int | None = None
    duration_ms: int | None = None
    tail: bytes = b""
    timed_out: bool = False
    """It was killed because it exceeded the time limit."""


def verdict_status(result: CommandExit) -> VerdictStatus:
    """Return pass for 0, error if the exit is no statement about the environment, otherwise fail."""
    code = result.exit_code
    if code is None or result.timed_out or result.signal is not None:
        return VerdictStatus.ERROR
    if code in INCONCLUSIVE or code in BY_SIGNAL:
        return VerdictStatus.ERROR
    return VerdictStatus.FAIL if code else VerdictStatus.PASS


def signal_of(result: CommandExit) -> int | None:
    """Return the signal that ended the command, also if a shell reports it."""
    if result.signal is None and result.exit_code in BY_SIGNAL:
        return (result.exit_code or 0) - 128
    return result.signal


def exit_status(verdict: Verdict) -> int:
    """Return the exit status of the check itself, as a shell would."""
    if verdict.exit_code is not None:
        return verdict.exit_code
    if verdict.signal is not None:
        return 128 + verdict.signal
    return NOT_RUN


def answer_status(verdict: Verdict) -> int:
    """Return the exit status of a query: 0 passes, 1 fails, 125 inconclusive."""
    known = {VerdictStatus.PASS: 0, VerdictStatus.FAIL: 1}
    return known.get(verdict.status, NOT_JUDGED)


# The end of a check's output is sealed in the notes.

OUTPUT = b"output"
CLOSED = "(sealed with a key that you do not have)"


def seal_output(verdict: Verdict, snapshot: SnapshotId, key: SealingKey) -> str:
    """Return the last part of the output, sealed and bound to this snapshot's id; empty if there is none."""
    if not verdict.output_tail:
        return ""
    plain = verdict.output_tail.encode("utf-8", "surrogateescape")
    return base64.b64encode(seal(key, snapshot.encode("ascii"), OUTPUT, plain)).decode("ascii")


def with_output(snapshot: Snapshot, find_key: Callable[[str], SealingKey | None]) -> Snapshot:
    """Return the snapshot with the output of its checks, as far as the keys are available."""
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
    """Writes verdicts to the notes of one repository."""

    repository: Repository
    settings: Settings
    keys: KeyRing
    environ: Mapping[str, str]

    @property
    def ledger(self) -> VerdictLog:
        return VerdictLog(self.repository.common_state)

    def verdict(self, command: str, result: CommandExit, before: str, after: str | None) -> Verdict:
        """Return the verdict of a command, masked."""
        return Verdict(
            verdict_status(result),
            mask_text(command),
            current_time(self.repository.git, self.environ),
            result.exit_code,
            signal_of(result),
            result.duration_ms,
            mask_text(result.tail.decode("utf-8", "replace")),
            before,
            after,
            timed_out=result.timed_out,
        )

    def record(self, snapshot: Snapshot, verdict: Verdict, typed: str) -> list[str]:
        """Write a verdict; return warnings."""
        warnings: list[str] = []
        key = self._key(warnings)
        sealed = seal_output(verdict, snapshot.id, key) if key is not None else ""
        note = verdict_record(replace(verdict, sealed_output=sealed))
        actor = current_actor(self.settings, self.environ)
        note = NoteRecord(note.kind, note.at, {**note.fields, AUTHOR: mask_text(actor.name)})
        if key is not None:
            note = signed(note, snapshot.id, key)
        author_line = signature(actor, verdict.at)
        try:
            add_note_records(self.repository, self._own_timeline, snapshot, (note,), author_line)
        except (EnvhistError, OSError) as error:
            return [
                *warnings,
                f"the verdict could not be stored; the snapshot is not affected: {in_words(error)}",
            ]
        return [*warnings, *self._remember(snapshot, verdict, typed)]

    def _own_timeline(self) -> str:
        return ensure_timeline(self.repository, self.settings)

    def _key(self, warnings: list[str]) -> Key | None:
        try:
            return self.keys.current()
        except SealingError as error:
            warnings.append(f"the verdict is not signed, and its output is not stored: {in_words(error)}")
            return None

    def _remember(self, snapshot: Snapshot, verdict: Verdict, typed: str) -> list[str]:
        approve_command(self.environ, self.repository.common_dir, typed)
        try:
            facts, services = read_environment_digests(self.repository.git, snapshot.tree)
            self.ledger.add(
                LoggedVerdict(snapshot.id, verdict.tree_before or "", facts, typed, verdict, services)
            )
        except (EnvhistError, OSError) as error:
            return [f"the verdict could not be added to the private list: {in_words(error)}"]
        return []
