"""Carry out a plan: stage, journal, swap, verify, finish; and finish or undo an interrupted restore."""

from __future__ import annotations

import os
import signal
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import NamedTuple

from git_envhist.disk import state_directory, sync_directory
from git_envhist.errors import EnvhistError, UnfinishedRestore, in_words
from git_envhist.model import TOP, EnvPath, RestorePlan, SkippedPath
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.restore.apply_journal import ApplyResult, abort, apply, discard, finish
from git_envhist.restore.check_replaced import KnownStat, no_known_stat
from git_envhist.restore.compare_files import content_checker
from git_envhist.restore.environment_disk import EnvironmentDisk, open_environment_disk
from git_envhist.restore.journal import (
    JOURNAL,
    Phase,
    RestoreJournal,
    journal_text,
    read_journal,
    read_phase,
    remove_journal,
    slot_locations,
    with_current_devices,
    write_journal,
)
from git_envhist.restore.metadata_losses import describe_losses
from git_envhist.restore.stage import stage, sync_all_staged
from git_envhist.restore.storable_times import NOT_STORABLE
from git_envhist.restore.sync import FEW, sync_kept
from git_envhist.restore.verify import Mismatch, Row, verify_restored_files
from git_envhist.trace import trace_step

OVER = (Phase.DONE, Phase.UNDONE)
FinalAction = Callable[[RestoreJournal], None]
"""A final action, done while the journal still exists."""


def no_final_action(_: RestoreJournal) -> None:
    """Do nothing: the final action of a restore that changes only files."""


class JournalElsewhere(Exception):
    """Raised if a journal was written elsewhere, so that it does not describe the slots found here."""


class ExecuteResult(NamedTuple):
    """The result of executing a plan."""

    verified: int
    kept: tuple[SkippedPath, ...]
    losses: tuple[SkippedPath, ...]
    undone: bool = False
    notes: tuple[tuple[str, str], ...] = ()
    rows: Mapping[tuple[bytes, EnvPath], Row] = {}
    """Stat data of each written path, taken when it was read back."""


class RestoreTarget(NamedTuple):
    """The roots of an environment, and the private directory of a restore."""

    private: str
    """The directory with the journal and, where they can be renamed from there, the slots."""
    bases: Mapping[bytes, bytes]
    forbidden: frozenset[tuple[int, int]]
    open_contents: Callable[[], ObjectReader]
    how: str

    @contextmanager
    def open_disk(self) -> Iterator[EnvironmentDisk]:
        """Open the roots and slots; an error after the journal was written becomes `UnfinishedRestore`."""
        state_directory(self.private)
        with closing(open_environment_disk(self.bases, self.private, forbidden=self.forbidden)) as disk:
            try:
                yield disk
            except UnfinishedRestore:
                raise
            except KeyboardInterrupt as stopped:
                if not self.is_left():
                    raise
                number = getattr(stopped, "number", signal.SIGINT)
                raise UnfinishedRestore("restore stopped by a signal", number) from stopped
            except (EnvhistError, OSError) as error:
                if not self.is_left():
                    raise
                raise UnfinishedRestore(f"restore interrupted: {in_words(error)}") from error

    def is_left(self) -> bool:
        """Return whether a journal exists, so that something may have been changed."""
        return os.path.lexists(os.path.join(self.private, JOURNAL))


@trace_step("execute the plan and verify")
def execute(
    place: RestoreTarget,
    plan: RestorePlan,
    notes: tuple[tuple[str, str], ...],
    *,
    known: KnownStat = no_known_stat,
    final_action: FinalAction = no_final_action,
    meanwhile: Callable[[], None] = lambda: None,
    while_waiting: Callable[[], None] = lambda: None,
) -> ExecuteResult:
    """Execute a plan and verify the result.

    `known`: stat data from the capture. `meanwhile` runs while workers stage files, `while_waiting` while staged files
    are synced; if one of them fails, nothing has been changed.
    """
    with place.open_disk() as disk:
        # Remove what a restore staged that never started.
        discard(disk)
    with place.open_disk() as disk:
        try:
            prepared = stage(
                plan,
                disk,
                place.open_contents,
                known=known,
                how=place.how,
                durable=False,
                meanwhile=meanwhile,
            )
            journal = RestoreJournal(prepared.staged, plan.directories, notes, slot_locations(disk))
            with _synced_meanwhile(disk, plan):
                text = journal_text(journal)
                while_waiting()
            write_journal(place.private, text)
        except BaseException:
            if not place.is_left():
                discard(disk)
            raise
        sync_directory(os.path.dirname(place.private))
        applied = apply(journal, disk, fresh=True)
        early = ApplyResult(prepared.skipped, prepared.losses)
        return _verify_and_finish(place, disk, journal, early, applied, final_action)


@contextmanager
def _synced_meanwhile(disk: EnvironmentDisk, plan: RestorePlan) -> Iterator[None]:
    """Sync the staged files while the body runs; return when both are done."""
    if len(plan.steps) > FEW:
        with in_background_thread(lambda: sync_all_staged(disk, plan.steps)):
            yield
    else:
        yield
        sync_all_staged(disk, plan.steps)


Continue = Callable[[RestoreJournal, EnvironmentDisk], ExecuteResult]


def finish_interrupted(
    place: RestoreTarget, final_action: FinalAction = no_final_action
) -> ExecuteResult | None:
    """Finish an interrupted restore; None if there is none."""

    def apply_rest(journal: RestoreJournal, disk: EnvironmentDisk) -> ExecuteResult:
        with closing(place.open_contents()) as contents:
            applied = apply(journal, disk, check_content=content_checker(contents))
        return _verify_and_finish(place, disk, journal, ApplyResult(()), applied, final_action)

    return _continue_journal(place, final_action, apply_rest)


def revert_interrupted(
    place: RestoreTarget, final_action: FinalAction = no_final_action
) -> ExecuteResult | None:
    """Undo an interrupted restore; None if there is none."""

    def undo(journal: RestoreJournal, disk: EnvironmentDisk) -> ExecuteResult:
        applied = abort(journal, disk)
        kept = finish(journal, disk, place.private, undone=True, final_action=lambda: final_action(journal))
        return ExecuteResult(
            0,
            (*_kept_files(place, kept), *applied.skipped),
            describe_losses(applied.losses),
            True,
            journal.notes,
        )

    return _continue_journal(place, final_action, undo)


def _continue_journal(
    place: RestoreTarget, final_action: FinalAction, go_on: Continue
) -> ExecuteResult | None:
    """Return the result of `go_on` for the journal; only clean up if its steps are done; None without a journal."""
    journal = read_journal(place.private)
    if journal is None:
        return None
    with place.open_disk() as disk:
        journal = _checked_journal(journal, disk)
        if read_phase(place.private) in OVER:
            return _finish_cleanup(place, disk, journal, final_action)
        return go_on(journal, disk)


def discard_journal(place: RestoreTarget) -> ExecuteResult:
    """Remove a journal that does not describe the slots; keep everything in the slots."""
    with place.open_disk() as disk:
        kept = [where for slots in disk.all_slots if (where := slots.set_aside()) is not None]
        sync_kept(disk)
        remove_journal(place.private)
    kept_paths = tuple(
        SkippedPath(TOP, f"files that the restore had replaced are in '{os.fsdecode(one)}'") for one in kept
    )
    return ExecuteResult(0, kept_paths, ())


def _checked_journal(journal: RestoreJournal, disk: EnvironmentDisk) -> RestoreJournal:
    current = with_current_devices(journal, disk)
    if current is None:
        raise JournalElsewhere
    return current


def _finish_cleanup(
    place: RestoreTarget, disk: EnvironmentDisk, journal: RestoreJournal, final_action: FinalAction
) -> ExecuteResult:
    undone = read_phase(place.private) is Phase.UNDONE
    with closing(place.open_contents()) as contents:
        kept = finish(
            journal,
            disk,
            place.private,
            undone=undone,
            final_action=lambda: final_action(journal),
            check_content=content_checker(contents),
        )
    return ExecuteResult(0, _kept_files(place, kept), (), undone, journal.notes)


def _verify_and_finish(
    place: RestoreTarget,
    disk: EnvironmentDisk,
    journal: RestoreJournal,
    early: ApplyResult,
    applied: ApplyResult,
    final_action: FinalAction,
) -> ExecuteResult:
    left = (*early.skipped, *applied.skipped)
    skipped = frozenset(EnvPath(item.path) for item in left)
    differences, rows = verify_restored_files(
        journal, disk, place.open_contents, skipped=skipped, how=place.how
    )
    imprecise = ((item.path, item.field) for item in differences if item.field == NOT_STORABLE)
    losses = describe_losses((*early.losses, *applied.losses, *imprecise))
    changed = _concurrent_changes(
        differences, {EnvPath(path) for path, _ in (*early.losses, *applied.losses)}
    )
    with closing(place.open_contents()) as contents:
        kept = finish(
            journal,
            disk,
            place.private,
            final_action=lambda: final_action(journal),
            check_content=content_checker(contents),
        )
    verified = sum(1 + len(staged.step.below) for staged in journal.staged if staged.step.after is not None)
    # Kept files first: of a long list only the beginning is printed.
    everything = (*_kept_files(place, kept), *left, *changed)
    return ExecuteResult(max(0, verified - len(skipped)), everything, losses, False, journal.notes, rows)


def _concurrent_changes(differences: Iterable[Mismatch], lost: set[EnvPath]) -> tuple[SkippedPath, ...]:
    """Return paths that another process changed after they were restored.

    Wrong contents with the right mtime are a defect of the restore: raise `UnfinishedRestore`.
    """
    found: dict[EnvPath, set[str]] = {}
    for difference in differences:
        if difference.field != NOT_STORABLE:
            found.setdefault(difference.path, set()).add(difference.field)
    for path, what in found.items():
        if "content" in what and "mtime" not in what:
            raise UnfinishedRestore(f"written contents differ from the snapshot: '{os.fsdecode(path)}'")
    return tuple(
        SkippedPath(path, f"{', '.join(sorted(what))} changed meanwhile")
        for path, what in found.items()
        if path not in lost
    )


def _kept_files(place: RestoreTarget, kept: Iterable[SkippedPath]) -> tuple[SkippedPath, ...]:
    return tuple(
        SkippedPath(
            item.path,
            f"changed during the restore; those contents are in '{os.path.join(place.private, item.why)}'",
        )
        for item in kept
    )


@contextmanager
def in_background_thread(wait: Callable[[], None]) -> Iterator[None]:
    """Run `wait` in a thread while the body runs; raise its error afterwards. The body must not fork: a forked process
    would not have the thread."""
    ended, failed = allocate_lock(), list[BaseException]()
    ended.acquire()

    def run() -> None:
        try:
            wait()
        except BaseException as error:  # raised in the caller's thread
            failed.append(error)
        finally:
            ended.release()

    try:
        start_new_thread(run, ())
    except RuntimeError:  # the system has no thread left, or the interpreter exits
        run()
    try:
        yield
    finally:
        ended.acquire()
    if failed:
        raise failed[0]
