"""Restore, undo and redo, as `EnvHistory` offers them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING

from git_envhist.context import HistoryContext
from git_envhist.disk import system_errors
from git_envhist.errors import EnvhistError, UnfinishedRestore
from git_envhist.git.cat_file import CatFile
from git_envhist.git.repository import TRASH_REFS, Repository
from git_envhist.history.resolve import NOTHING_CAPTURED
from git_envhist.history.tasks_and_effects import effects_since
from git_envhist.history.timeline import subject
from git_envhist.lazy import replace
from git_envhist.model import (
    TOP,
    Effect,
    EnvPath,
    RecoveryResult,
    RestoreResult,
    RestoreRole,
    Snapshot,
    SnapshotId,
)
from git_envhist.restore.merge_sources import MergeSources
from git_envhist.restore.options import DEFAULT_OPTIONS, RestoreOptions
from git_envhist.restore.restore_runner import Choose, PresentState, RestoreContext, RestoreRunner
from git_envhist.restore.undo_stack import Difference, State, States, UndoStack, read_undo_stack
from git_envhist.secrets.seal import unseal
from git_envhist.worktree.timeline_name import current_timeline

if TYPE_CHECKING:
    from git_envhist.capture.pipeline import CapturePipeline
    from git_envhist.git.repository import Repository
    from git_envhist.restore.execute import ExecuteResult
    from git_envhist.restore.services import ServiceRestore


# Undo and redo: choose the snapshot from the timeline and the environment now.

WithTrash = Callable[[str], tuple[list[Snapshot], frozenset[SnapshotId]]]
"""Return a timeline with its recently dropped snapshots, oldest first, and the ids of these."""


class NothingToUndo(EnvhistError):
    """There is no state in that direction."""

    exit_code = 4
    code = "nothing-to-undo"
    usual_hint = "'git envlog --graph' shows every restore and undo"


class UndoTargetChooser:
    """Choose the snapshot for undo and redo."""

    def __init__(
        self, context: RestoreContext, log: Callable[[], list[Snapshot]], with_trash: WithTrash
    ) -> None:
        """`log`: the snapshots of the timeline, newest first."""
        self._context = context
        self._log = log
        self._with_trash = with_trash
        self.left: SnapshotId | None = None
        """The snapshot of the state that the last undo leaves; None if that state was new."""
        self.skipped = ""
        """A warning about a dropped state that the last choice passed over."""

    def back(self, steps: int, now: PresentState | None) -> Snapshot:
        """Return the state to undo to; `NothingToUndo` if there is none."""
        assert now is not None
        context = State(now.content, now.tree)
        # With more steps, an equal state is the goal: it need not be the one before the present.
        further = steps + now.further if steps == 1 else steps
        self.skipped = ""
        with self._compared(now) as states:
            walk = read_undo_stack(reversed(self._log()), states, states.caches_alone)
            self.left = None if walk.current is None or walk.is_new(context) else walk.current.id
            stop, dropped = walk.back(further, context), self._dropped(further, context, states)
            if dropped is not None and not _is_as_good(stop, dropped, states):
                self._note_dropped(dropped, stop)
            if stop is None:
                raise _nothing_to_undo(walk, steps, context, further - steps)
        return stop

    def forward(self, steps: int, now: PresentState | None) -> Snapshot:
        """Return the state to redo; `NothingToUndo` if there is none."""
        assert now is not None
        context = State(now.content, now.tree)
        with self._compared(now) as states:
            walk = read_undo_stack(reversed(self._log()), states, states.caches_alone)
            stop, is_new = walk.forward(steps, context), walk.is_new(context)
        if stop is not None:
            return stop
        ahead = walk.cut_off or (walk.stops[walk.cursor + 1 :] if is_new else ())
        if ahead:
            raise NothingToUndo(
                "there is new work since the last undo: nothing to redo",
                hint=f"the undone states are still stored: git envrestore {ahead[-1].id[:7]}",
            )
        raise NothingToUndo("nothing was undone, so there is nothing to redo")

    @contextmanager
    def _compared(self, now: PresentState) -> Iterator[States]:
        with closing(self._context.contents(now.git)) as contents:
            yield States(contents)

    def _dropped(self, steps: int, context: State, states: States) -> Snapshot | None:
        """Return the state that undo would lead to, had it not been dropped."""
        capturing = self._context.capturing
        timeline = current_timeline(capturing.repository, capturing.settings)
        if timeline is None or not capturing.repository.list_refs(TRASH_REFS):
            return None
        snapshots, dropped_ids = self._with_trash(timeline)
        stop = (
            read_undo_stack(snapshots, states, states.caches_alone).back(steps, context)
            if snapshots
            else None
        )
        return stop if stop is not None and stop.id in dropped_ids else None

    def _note_dropped(self, dropped: Snapshot, stop: Snapshot | None) -> None:
        state = f"the state before was dropped: {dropped.id[:7]} '{subject(dropped.intent)}'"
        command = f"git envlog undrop {dropped.id[:7]}"
        if stop is None:
            raise NothingToUndo(state, hint=f"to get it back: {command}")
        self.skipped = f"{state}; this is {stop.id[:7]} instead (to get it back: {command})"


def _is_as_good(stop: Snapshot | None, dropped: Snapshot, states: States) -> bool:
    """Return whether one state differs from a dropped one in times at most."""
    if stop is None or stop.content != dropped.content:
        return False
    return states(State.of(stop), State.of(dropped)) is not Difference.MORE


def _nothing_to_undo(walk: UndoStack, steps: int, context: State, further: int) -> NothingToUndo:
    most = min(steps, len(walk.stops))
    far = next((n for n in range(most, 0, -1) if walk.back(n + further, context)), 0)
    if far and far < steps:
        return NothingToUndo(
            f"there are fewer than {steps:,} earlier states",
            hint=f"the furthest possible: git envrestore --undo {far}",
        )
    return NothingToUndo(
        "there is no earlier state",
        hint="'git envlog --no-fold' lists every snapshot of this timeline"
        if walk.stops
        else NOTHING_CAPTURED,
    )


RECENT_SNAPSHOTS = 50
"""The number of newest snapshots that usually contain the target."""


class Restorer:
    """Runs restores, undo and redo of one history."""

    def __init__(
        self,
        history: HistoryContext,
        capturing: CapturePipeline,
        with_trash: WithTrash,
        tidy: Callable[[Repository], None],
    ) -> None:
        """`tidy` is called after a restore that took a snapshot, when the locks are released."""
        self._history = history
        self._capturing = capturing
        context = RestoreContext(capturing, history.judge, history.open_sealed, history.resolve)
        self._with_trash = with_trash
        self._context = context
        self._runner = RestoreRunner(context)
        self._tidy = tidy

    def to(self, snapshot: Snapshot, options: RestoreOptions = DEFAULT_OPTIONS) -> RestoreResult:
        """Restore a snapshot."""
        if options.allow_unsigned or self._history.judge(snapshot).trusted:
            self._history.with_contents(snapshot, TOP)
        restored = self._run(options, RestoreRole.TO, lambda _: snapshot)
        return self._with_path_warning(restored, options, "git envrestore")

    def _with_path_warning(
        self, restored: RestoreResult, options: RestoreOptions, command: str
    ) -> RestoreResult:
        """Return a result with a warning if restored files contain the path of another working tree."""
        context = self._capturing
        if restored.target.timeline == current_timeline(context.repository, context.settings):
            return restored
        from git_envhist.restore.relocate import foreign_path_warning  # loaded late: hardly ever needed

        warning = foreign_path_warning(context, restored, command, asked=options.relocate)
        return replace(restored, warnings=(*restored.warnings, warning)) if warning else restored

    def merge(self, sources: MergeSources, options: RestoreOptions = DEFAULT_OPTIONS) -> RestoreResult:
        """Revert or merge snapshots and keep what else changed; raise `MergeConflicts` if both sides overlap."""
        for snapshot in sources.snapshots:
            if options.allow_unsigned or self._history.judge(snapshot).trusted:
                self._history.with_contents(snapshot, TOP)
        merged = self._run(options, sources.role, lambda _: sources.target, sources)
        if sources.role is not RestoreRole.MERGE:
            return merged
        return self._with_path_warning(merged, options, "git envlog merge")

    def undo(self, steps: int = 1, options: RestoreOptions = DEFAULT_OPTIONS) -> RestoreResult:
        """Restore the newest earlier state that differs from the environment now, `steps` back."""
        stepping = self._stepping
        options = replace(options, left=lambda: stepping.left)
        restored = self._run(options, RestoreRole.UNDO, lambda now: stepping.back(steps, now))
        if not stepping.skipped:
            return restored
        return replace(restored, warnings=(*restored.warnings, stepping.skipped))

    def redo(self, steps: int = 1, options: RestoreOptions = DEFAULT_OPTIONS) -> RestoreResult:
        """Redo what undo has undone."""
        stepping = self._stepping
        return self._run(options, RestoreRole.REDO, lambda now: stepping.forward(steps, now))

    @property
    def _stepping(self) -> UndoTargetChooser:

        return UndoTargetChooser(self._context, self._history.log, self._with_trash)

    @property
    def is_interrupted(self) -> bool:
        """Return whether an interrupted restore must be finished first."""
        try:
            self._capturing.refuse_unfinished_restore()
        except UnfinishedRestore:
            return True
        return False

    @property
    def changed(self) -> Snapshot | None:
        """Return the safety snapshot, once something was changed."""
        return self._runner.changed

    def write_to(
        self, snapshot: Snapshot, directory: str, options: RestoreOptions = DEFAULT_OPTIONS
    ) -> RestoreResult:
        """Write a snapshot into another directory; nothing in the environment is changed."""
        with self._with_system_errors():
            self._history.with_contents(snapshot, TOP)
            written = self._runner.write_to(snapshot, directory, options)
        if not self._is_captured(directory):
            return written
        warning = f"'{directory}' is in the environment: the next capture includes it unless .envhistignore excludes it"
        return replace(written, warnings=(*written.warnings, warning))

    def continue_restore(self) -> ExecuteResult:
        """Finish an interrupted restore."""
        with self._with_system_errors():
            return self._runner.continue_restore()

    def abort_restore(self) -> ExecuteResult:
        """Undo an interrupted restore."""
        with self._with_system_errors():
            return self._runner.abort_restore()

    @staticmethod
    def recovery_result(carried: ExecuteResult) -> RecoveryResult:
        """Return the public result of a recovery."""
        return RecoveryResult(carried.undone, tuple(carried.kept), tuple(carried.losses))

    def write_attachments_of(self, snapshot: Snapshot, directory: str) -> list[str]:
        """Write the attachments of a snapshot into a directory."""
        # loaded late: few restores write attachments
        from git_envhist.tracking.attachments import read_attachments, write_attachments

        self._history.with_contents(snapshot, TOP)
        with CatFile(self._history.repository.git) as reader:
            return write_attachments(directory, read_attachments(reader, snapshot, self._open_attachment))

    def _run(
        self, options: RestoreOptions, role: RestoreRole, choose: Choose, sources: MergeSources | None = None
    ) -> RestoreResult:
        effects: dict[SnapshotId, tuple[Effect, ...]] = {}

        def chosen(now: PresentState | None) -> Snapshot:
            target = choose(now)
            # Asked before anything changes, because the current directory may be removed by the restore; and only after
            # the capture, because until then all processors are busy.
            if now is not None and target.id not in effects:
                effects[target.id] = self._effects_since(target)
            return target

        try:
            with self._with_system_errors():
                if sources is not None:
                    restored = self._runner.restore(options, role, chosen, sources)
                    effects[sources.target.id] = self._effects_of(sources)
                else:
                    runner = self._service_restore if options.services else self._runner
                    restored = runner.restore(options, role, chosen)
            if restored.snapshot is not None:
                self._tidy(self._capturing.repository)
            return replace(restored, effects=effects.get(restored.target.id, ()))
        finally:
            self._history.refresh()

    def _effects_since(self, target: Snapshot) -> tuple[Effect, ...]:
        newest = self._history.log(RECENT_SNAPSHOTS)
        is_near = len(newest) < RECENT_SNAPSHOTS or any(one.id == target.id for one in newest)
        return effects_since(newest if is_near else self._history.log(), target.id)

    def _effects_of(self, sources: MergeSources) -> tuple[Effect, ...]:
        """Return the effects of reverted steps; those of later snapshots are none of the step. A merge undoes none."""
        if sources.role is RestoreRole.MERGE:
            return ()
        log = self._history.log()
        found: dict[str, Effect] = {}
        for span in sources.spans:
            later = {effect.mark for effect in effects_since(log, span.base.id)}
            found.update(
                (effect.mark, effect)
                for effect in effects_since(log, span.other.id)
                if effect.mark not in later
            )
        return tuple(found.values())

    def _is_captured(self, directory: str) -> bool:
        if self._history.repository.bare:
            return False
        bases = self._capturing.read_scope(None).bases.values()
        inside = os.path.realpath(os.fsencode(directory)) + b"/"
        git_dir = os.path.realpath(os.fsencode(self._history.repository.git_dir)) + b"/"
        return not inside.startswith(git_dir) and any(
            inside.startswith(os.path.realpath(base).rstrip(b"/") + b"/") for base in bases
        )

    def _with_system_errors(self) -> AbstractContextManager[None]:
        return system_errors(self._history.repository.git_dir)

    @property
    def _service_restore(self) -> ServiceRestore:
        from git_envhist.restore.services import ServiceRestore  # loaded late: few repositories have services

        history = self._history
        return ServiceRestore(self._capturing, self._runner, history.keys.to_open, history.log)

    def _open_attachment(self, name: EnvPath, sealed: bytes) -> bytes:
        return unseal(self._history.keys.to_open, name, b"attachment", sealed)
