"""Carries a journal out, or takes it back: both can be begun again from wherever a kill left them.

First directories that are closed to us are opened; then each step's two sides change places; then the directories get
what their own lines say, the deepest first. A step whose path is not as the plan knows it is left out and told.
"""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.model import (
    Entry,
    EntryKind,
    EnvPath,
    PlanAction,
    PlannedDirectory,
    SkippedPath,
    shown_path,
)
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.dress import Lose
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.looks import DiskEntry, look
from git_envhist.restore.swap import CHANGED, GONE, Prove, StagedStep, StepSkipped, Swap, no_proof
from git_envhist.restore.victims import UNIT
from git_envhist.values import dataclass

OnStep = Callable[[int, int], None]
"""(steps done, steps in all)."""


def nobody_listens(done: int, total: int) -> None:
    """For callers that show no progress."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What was left out, and what could not be had here."""

    left_alone: tuple[SkippedPath, ...]
    losses: tuple[tuple[bytes, str], ...] = ()


def apply(
    journal: RestoreJournal,
    door: RestoreDisk,
    on_step: OnStep = nobody_listens,
    *,
    fresh: bool = False,
    prove: Prove = no_proof,
) -> ApplyResult:
    """Bring the environment to the target; `fresh`: the journal was written just now, and nothing has been done.

    Else somebody may have been at work since, and what a look cannot tell is to be proven.
    """
    applier = _Applier(journal, door, fresh, prove)
    applier.open_up()
    for done, staged in enumerate(journal.staged):
        applier.forward(staged)
        on_step(done + 1, len(journal.staged))
    applier.dress(lambda own: own.after)
    return applier.applied()


def abort(journal: RestoreJournal, door: RestoreDisk, on_step: OnStep = nobody_listens) -> ApplyResult:
    """Bring the environment back to where it was."""
    applier = _Applier(journal, door, False, no_proof)
    applier.open_up()
    for done, staged in enumerate(reversed(journal.staged)):
        applier.backward(staged)
        on_step(done + 1, len(journal.staged))
    applier.dress(lambda own: own.before)
    return applier.applied()


class _Applier:
    def __init__(self, journal: RestoreJournal, door: RestoreDisk, fresh: bool, prove: Prove) -> None:
        self._journal = journal
        self._door = door
        self._fresh = fresh
        self._prove = prove
        self._left: list[SkippedPath] = []
        self._left_paths: set[tuple[bytes, EnvPath]] = set()
        self._losses: list[tuple[bytes, str]] = []
        self._broken_units: set[int] = set()
        self._units: dict[int, list[StagedStep]] = {}

    def open_up(self) -> None:
        """Let us into every directory that one of the sides closes, those above first."""
        for own in reversed(self._journal.directories):
            sides = [side for side in (own.before, own.after) if side is not None]
            if any(side.mode & 0o700 != 0o700 for side in sides):
                self._door.open_up(own.realm, own.path)

    def forward(self, staged: StagedStep) -> None:
        unit = staged.step.unit
        if unit is not None and unit in self._broken_units:
            self._leave(staged, UNIT)
            return
        why = self._try(lambda: self._advance(staged))
        if why is not None:
            self._leave(staged, why)
            if unit is not None:
                self._take_back(unit)
        elif unit is not None:
            self._units.setdefault(unit, []).append(staged)

    def backward(self, staged: StagedStep) -> None:
        why = self._try(lambda: self._retreat(staged))
        if why is not None:
            self._leave(staged, why)

    def dress(self, side_of: Callable[[PlannedDirectory], Entry | None]) -> None:
        """Give the directories what their own lines say: nothing here moves their times any more."""
        for own in self._journal.directories:
            entry = side_of(own)
            if entry is None:
                # It goes; where it could not, it stays as it was.
                self._dress(own, own.before)
            elif not self._is_left(own):
                why = self._dress(own, entry)
                if why is not None:
                    self._left.append(SkippedPath(shown_path(own.realm, own.path), why))

    def applied(self) -> ApplyResult:
        return ApplyResult(tuple(self._left), tuple(self._losses))

    def _advance(self, staged: StagedStep) -> None:
        if staged.step.action is PlanAction.ADJUST:
            assert staged.step.after is not None
            self._adjust(staged, staged.step.after)
        else:
            Swap(self._door, staged, self._prove).forward(strictly=self._fresh)

    def _retreat(self, staged: StagedStep) -> None:
        if staged.step.action is PlanAction.ADJUST:
            assert staged.step.before is not None
            self._adjust(staged, staged.step.before)
        else:
            Swap(self._door, staged).backward()

    def _adjust(self, staged: StagedStep, entry: Entry) -> None:
        step, known = staged.step, staged.victim
        assert known is not None
        assert step.before is not None
        assert step.after is not None
        with self._door.parent(step.realm, step.path) as (directory, name):
            now = look(directory, name)
            if now is None:
                raise StepSkipped(GONE)
            if not _is_between(now, known, step.before, step.after):
                raise StepSkipped(CHANGED)
            self._door.dresser.named(directory, name, entry, self._losing(step.shown))

    def _dress(self, own: PlannedDirectory, entry: Entry | None) -> str | None:
        if entry is None:
            return None
        losing = self._losing(shown_path(own.realm, own.path))
        return self._try(lambda: self._door.dress_directory(own.realm, own.path, entry, losing))

    def _take_back(self, unit: int) -> None:
        """A unit of which one step cannot be made is not touched at all."""
        self._broken_units.add(unit)
        for staged in reversed(self._units.pop(unit, [])):
            why = self._try(lambda staged=staged: self._retreat(staged))  # type: ignore[misc]
            self._leave(staged, why or UNIT)

    def _try(self, do: Callable[[], None]) -> str | None:
        try:
            do()
        except StepSkipped as reason:
            return reason.why
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _leave(self, staged: StagedStep, why: str) -> None:
        self._left.append(SkippedPath(staged.step.shown, why))
        self._left_paths.add((staged.step.realm, staged.step.path))

    def _is_left(self, own: PlannedDirectory) -> bool:
        # What somebody else put where a directory should have come is not ours to dress.
        return own.before is None and (own.realm, own.path) in self._left_paths

    def _losing(self, shown: bytes) -> Lose:
        return lambda what: self._losses.append((shown, what))


def _is_between(now: DiskEntry, known: DiskEntry, before: Entry, after: Entry) -> bool:
    """Whether it is the thing that was looked at, with some of its attributes those of one side, some of the other."""
    if (now.device, now.inode, now.kind, now.size) != (known.device, known.inode, known.kind, known.size):
        return False
    if now.kind is not EntryKind.LINK and now.links != 1:
        return False
    # Set-id bits may have been beyond us, and a closed file is opened while its attributes are set.
    modes = {mode & 0o1777 for mode in (before.mode, after.mode, before.mode | 0o200)}
    return now.mtime_ns in (before.mtime_ns, after.mtime_ns, known.mtime_ns) and now.mode & 0o1777 in modes
