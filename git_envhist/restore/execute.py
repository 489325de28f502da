"""Carries a plan out: stage, journal, apply, verify, finish; and goes on, or back, where that was broken off."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import NamedTuple

from git_envhist.disk import state_directory, sync_directory
from git_envhist.errors import EnvhistError, UnfinishedRestore, in_words
from git_envhist.model import TOP, EnvPath, RestorePlan, SkippedPath
from git_envhist.objects.reader import ObjectReader
from git_envhist.restore.compare_files import prover
from git_envhist.restore.disk import RestoreDisk, open_restore_disk
from git_envhist.restore.finish import ApplyResult, abort, apply, discard, finish
from git_envhist.restore.held_times import UNHELD
from git_envhist.restore.journal import (
    JOURNAL,
    Phase,
    RestoreJournal,
    journal_text,
    read_journal,
    read_phase,
    remove_journal,
    spots_of,
    with_current_devices,
    write_journal,
)
from git_envhist.restore.losses import told_losses
from git_envhist.restore.replaced import Known, nothing_is_known
from git_envhist.restore.stage import settle, stage
from git_envhist.restore.sync import FEW, in_background_thread, sync_kept
from git_envhist.restore.verify import Mismatch, Row, verify
from git_envhist.trace import step

OVER = (Phase.DONE, Phase.UNDONE)
Last = Callable[[RestoreJournal], None]
"""What is to be done at the very end, while the journal still stands."""


def nothing_else(_: RestoreJournal) -> None:
    """A restore of files alone."""


class JournalElsewhere(Exception):
    """A journal that was written at another place, or under other numbers: it tells nothing of what lies here."""


class ExecuteResult(NamedTuple):
    """What came of it."""

    verified: int
    kept: tuple[SkippedPath, ...]
    losses: tuple[SkippedPath, ...]
    undone: bool = False
    notes: tuple[tuple[str, str], ...] = ()
    rows: Mapping[tuple[bytes, EnvPath], Row] = {}
    """How what was brought looked when it was read back."""


class RestoreTarget(NamedTuple):
    """Where an environment is restored."""

    private: str
    """The directory of ours that holds the journal and, where they can be renamed from there, the slots."""
    bases: Mapping[bytes, bytes]
    forbidden: frozenset[tuple[int, int]]
    open_contents: Callable[[], ObjectReader]
    how: str

    @contextmanager
    def door(self) -> Iterator[RestoreDisk]:
        """The way into the environment; whatever breaks off what has begun says how it can be ended."""
        state_directory(self.private)
        with closing(open_restore_disk(self.bases, self.private, forbidden=self.forbidden)) as door:
            try:
                yield door
            except UnfinishedRestore:
                raise
            except KeyboardInterrupt as stopped:
                if not self.is_left():
                    raise
                number = getattr(stopped, "number", signal.SIGINT)
                raise UnfinishedRestore("stopped by a signal, half way", number) from stopped
            except (EnvhistError, OSError) as error:
                if not self.is_left():
                    raise
                raise UnfinishedRestore(f"broken off half way: {in_words(error)}") from error

    def is_left(self) -> bool:
        """Whether there is a journal: something may have been changed."""
        return os.path.lexists(os.path.join(self.private, JOURNAL))


@step("the plan is carried out and compared")
def execute(
    place: RestoreTarget,
    plan: RestorePlan,
    notes: tuple[tuple[str, str], ...],
    *,
    known: Known = nothing_is_known,
    last: Last = nothing_else,
    meanwhile: Callable[[], None] = lambda: None,
    beside: Callable[[], None] = lambda: None,
) -> ExecuteResult:
    """Bring the environment to where the plan leads.

    `known`: what the capture saw of what is replaced. What is to be done `meanwhile`, and `beside` the waiting for the
    medium, is done before anything is touched; where it fails, nothing is.
    """
    with place.door() as door:
        # Whatever a restore staged that never began.
        discard(door)
    with place.door() as door:
        try:
            prepared = stage(
                plan,
                door,
                place.open_contents,
                known=known,
                how=place.how,
                durable=False,
                meanwhile=meanwhile,
            )
            journal = RestoreJournal(prepared.staged, plan.directories, notes, spots_of(door))
            with _settled(door, plan):
                text = journal_text(journal)
                beside()
            write_journal(place.private, text)
        except BaseException:
            if not place.is_left():
                discard(door)
            raise
        sync_directory(os.path.dirname(place.private))
        applied = apply(journal, door, fresh=True)
        early = ApplyResult(prepared.skipped, prepared.losses)
        return _end(place, door, journal, early, applied, last)


@contextmanager
def _settled(door: RestoreDisk, plan: RestorePlan) -> Iterator[None]:
    """What is staged is on the medium when the body and this are done."""
    if len(plan.steps) > FEW:
        with in_background_thread(lambda: settle(door, plan.steps)):
            yield
    else:
        yield
        settle(door, plan.steps)


def finish_interrupted(place: RestoreTarget, last: Last = nothing_else) -> ExecuteResult | None:
    """Finish what was broken off; None where nothing was."""
    journal = read_journal(place.private)
    if journal is None:
        return None
    with place.door() as door:
        journal = _found_again(journal, door)
        if read_phase(place.private) in OVER:
            return _clean(place, door, journal, last)
        with closing(place.open_contents()) as contents:
            applied = apply(journal, door, prove=prover(contents))
        return _end(place, door, journal, ApplyResult(()), applied, last)


def revert_interrupted(place: RestoreTarget, last: Last = nothing_else) -> ExecuteResult | None:
    """Bring back what stood there before what was broken off; None where nothing was."""
    journal = read_journal(place.private)
    if journal is None:
        return None
    with place.door() as door:
        journal = _found_again(journal, door)
        if read_phase(place.private) in OVER:
            return _clean(place, door, journal, last)
        applied = abort(journal, door)
        kept = finish(journal, door, place.private, undone=True, last=lambda: last(journal))
        return ExecuteResult(
            0, (*_kept(place, kept), *applied.skipped), told_losses(applied.losses), True, journal.notes
        )


def discard_journal(place: RestoreTarget) -> ExecuteResult:
    """Forget a journal that tells nothing of what lies here; all that a restore had staged or put away is kept."""
    with place.door() as door:
        kept = [where for slots in door.all_slots if (where := slots.set_aside()) is not None]
        sync_kept(door)
        remove_journal(place.private)
    told = tuple(
        SkippedPath(TOP, f"what the restore had put away is in '{os.fsdecode(one)}'") for one in kept
    )
    return ExecuteResult(0, told, ())


def _found_again(journal: RestoreJournal, door: RestoreDisk) -> RestoreJournal:
    here = with_current_devices(journal, door)
    if here is None:
        raise JournalElsewhere
    return here


def _clean(place: RestoreTarget, door: RestoreDisk, journal: RestoreJournal, last: Last) -> ExecuteResult:
    undone = read_phase(place.private) is Phase.UNDONE
    with closing(place.open_contents()) as contents:
        kept = finish(
            journal, door, place.private, undone=undone, last=lambda: last(journal), prove=prover(contents)
        )
    return ExecuteResult(0, _kept(place, kept), (), undone, journal.notes)


def _end(
    place: RestoreTarget,
    door: RestoreDisk,
    journal: RestoreJournal,
    early: ApplyResult,
    applied: ApplyResult,
    last: Last,
) -> ExecuteResult:
    left = (*early.skipped, *applied.skipped)
    without = frozenset(EnvPath(item.path) for item in left)
    differences, rows = verify(journal, door, place.open_contents, without=without, how=place.how)
    unheld = ((item.path, item.what) for item in differences if item.what == UNHELD)
    losses = told_losses((*early.losses, *applied.losses, *unheld))
    changed = _judge(differences, {EnvPath(path) for path, _ in (*early.losses, *applied.losses)})
    with closing(place.open_contents()) as contents:
        kept = finish(journal, door, place.private, last=lambda: last(journal), prove=prover(contents))
    verified = sum(1 + len(staged.step.below) for staged in journal.staged if staged.step.after is not None)
    # What was put aside comes first: of a long list only the beginning is shown.
    everything = (*_kept(place, kept), *left, *changed)
    return ExecuteResult(max(0, verified - len(without)), everything, losses, False, journal.notes, rows)


def _judge(differences: Iterable[Mismatch], lost: set[EnvPath]) -> tuple[SkippedPath, ...]:
    """What somebody changed right after it was restored; bytes that are wrong under the right time are our fault."""
    found: dict[EnvPath, set[str]] = {}
    for difference in differences:
        if difference.what != UNHELD:
            found.setdefault(difference.path, set()).add(difference.what)
    for path, what in found.items():
        if "content" in what and "mtime" not in what:
            raise UnfinishedRestore(f"what was written is not what the snapshot holds: '{os.fsdecode(path)}'")
    return tuple(
        SkippedPath(path, f"{', '.join(sorted(what))} changed meanwhile")
        for path, what in found.items()
        if path not in lost
    )


def _kept(place: RestoreTarget, kept: Iterable[SkippedPath]) -> tuple[SkippedPath, ...]:
    return tuple(
        SkippedPath(
            item.path, f"what was written to it meanwhile is in '{os.path.join(place.private, item.why)}'"
        )
        for item in kept
    )
