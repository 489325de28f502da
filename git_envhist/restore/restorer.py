"""The verbs of going back, as `EnvHistory` has them."""

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
from git_envhist.history.timeline import subject
from git_envhist.history.work import effects_since
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
from git_envhist.restore.operation import Choose, Now, RestoreContext, RestoreRunner
from git_envhist.restore.options import NO_WISH, RestoreOptions
from git_envhist.restore.states import Difference, State, States, UndoStack, read_undo_stack
from git_envhist.secrets.seal import unseal
from git_envhist.worktree.timeline_name import current_timeline

if TYPE_CHECKING:
    from git_envhist.capture.pipeline import CapturePipeline
    from git_envhist.git.repository import Repository
    from git_envhist.restore.execute import ExecuteResult
    from git_envhist.restore.services import ServiceRestore


# The snapshot that undo or redo restores, chosen from the timeline and the environment now.

WithTrash = Callable[[str], tuple[list[Snapshot], frozenset[SnapshotId]]]
"""Return a timeline with its recently dropped snapshots, oldest first, and the ids of these."""


class NothingToUndo(EnvhistError):
    """There is no state in that direction."""

    exit_code = 4
    code = "nothing-to-undo"
    usual_hint = "'git envlog --graph' shows the states there are"


class Stepping:
    """Choose the snapshot for undo and redo."""

    def __init__(
        self, here: RestoreContext, log: Callable[[], list[Snapshot]], with_trash: WithTrash
    ) -> None:
        """`log`: the snapshots of the timeline, newest first."""
        self._here = here
        self._log = log
        self._with_trash = with_trash
        self.left: SnapshotId | None = None
        """The snapshot of the state that the last undo leaves; None if that state was new."""
        self.skipped = ""
        """A warning about a dropped state that the last choice passed over."""

    def back(self, steps: int, now: Now | None) -> Snapshot:
        """Return the state to undo to; `NothingToUndo` if there is none."""
        assert now is not None
        here, further = State(now.content, now.tree), steps + now.further
        self.skipped = ""
        with self._compared(now) as states:
            walk = read_undo_stack(reversed(self._log()), states, states.caches_alone)
            self.left = None if walk.here is None or walk.is_new(here) else walk.here.id
            stop, dropped = walk.back(further, here), self._dropped(further, here, states)
            if dropped is not None and not _is_as_good(stop, dropped, states):
                self._tell_dropped(dropped, stop)
            if stop is None:
                raise _why_none(walk, steps, here)
        return stop

    def forth(self, steps: int, now: Now | None) -> Snapshot:
        """Return the state to redo; `NothingToUndo` if there is none."""
        assert now is not None
        here = State(now.content, now.tree)
        with self._compared(now) as states:
            walk = read_undo_stack(reversed(self._log()), states, states.caches_alone)
            stop, is_new = walk.forward(steps, here), walk.is_new(here)
        if stop is not None:
            return stop
        ahead = walk.cut_off or (walk.stops[walk.cursor + 1 :] if is_new else ())
        if ahead:
            raise NothingToUndo(
                "there is new work since the last undo: nothing to redo",
                hint=f"what lay ahead is still there: git envrestore {ahead[-1].id[:7]}",
            )
        raise NothingToUndo("nothing was undone: there is nothing to redo")

    @contextmanager
    def _compared(self, now: Now) -> Iterator[States]:
        with closing(self._here.contents(now.git)) as contents:
            yield States(contents)

    def _dropped(self, steps: int, here: State, states: States) -> Snapshot | None:
        """Return the state that undo would lead to, had it not been dropped."""
        capturing = self._here.capturing
        timeline = current_timeline(capturing.repository, capturing.settings)
        if timeline is None or not capturing.repository.list_refs(TRASH_REFS):
            return None
        line, gone = self._with_trash(timeline)
        stop = read_undo_stack(line, states, states.caches_alone).back(steps, here) if line else None
        return stop if stop is not None and stop.id in gone else None

    def _tell_dropped(self, dropped: Snapshot, stop: Snapshot | None) -> None:
        state = f"the state before was dropped: {dropped.id[:7]} '{subject(dropped.intent)}'"
        again = f"git envlog undrop {dropped.id[:7]}"
        if stop is None:
            raise NothingToUndo(state, hint=f"bring it back: {again}")
        self.skipped = f"{state}; this is {stop.id[:7]} instead (bring it back: {again})"


def _is_as_good(stop: Snapshot | None, dropped: Snapshot, states: States) -> bool:
    """Whether one state differs from a dropped one in times at most."""
    if stop is None or stop.content != dropped.content:
        return False
    return states(State.of(stop), State.of(dropped)) is not Difference.MORE


def _why_none(walk: UndoStack, steps: int, here: State) -> NothingToUndo:
    far = next((n for n in range(min(steps, len(walk.stops)), 0, -1) if walk.back(n, here)), 0)
    if far and far < steps:
        return NothingToUndo(
            f"there are not {steps:,} earlier states",
            hint=f"as far back as it goes: git envrestore --undo {far}",
        )
    return NothingToUndo(
        "there is no earlier state to go back to",
        hint="'git envlog' lists every snapshot" if walk.stops else NOTHING_CAPTURED,
    )


FEW = 50
"""Most restores go no further back than so many moments."""


class Restorer:
    """Back, forth, elsewhere."""

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
        here = RestoreContext(capturing, history.judge, history.open_sealed, history.resolve)
        self._with_trash = with_trash
        self._tidy = tidy
        self._here = here
        self._restoring = RestoreRunner(here)

    def to(self, snapshot: Snapshot, wish: RestoreOptions = NO_WISH) -> RestoreResult:
        """To a moment."""
        if wish.foreign or self._history.judge(snapshot).trusted:
            self._history.with_contents(snapshot, TOP)
        restored = self._go(wish, RestoreRole.TO, lambda _: snapshot)
        here = self._capturing
        if restored.target.timeline == current_timeline(here.repository, here.settings):
            return restored
        from git_envhist.restore.relocate import warn_of_foreign_paths  # loaded late: hardly ever needed

        warning = warn_of_foreign_paths(here, restored, asked=wish.relocate)
        return replace(restored, warnings=(*restored.warnings, warning)) if warning else restored

    def undo(self, steps: int = 1, wish: RestoreOptions = NO_WISH) -> RestoreResult:
        """To the newest earlier state that differs from what is here, so many steps back."""
        stepping = self._stepping
        wish = replace(wish, left=lambda: stepping.left)
        restored = self._go(wish, RestoreRole.UNDO, lambda now: stepping.back(steps, now))
        if not stepping.skipped:
            return restored
        return replace(restored, warnings=(*restored.warnings, stepping.skipped))

    def redo(self, steps: int = 1, wish: RestoreOptions = NO_WISH) -> RestoreResult:
        """Forth again."""
        stepping = self._stepping
        return self._go(wish, RestoreRole.REDO, lambda now: stepping.forth(steps, now))

    @property
    def _stepping(self) -> Stepping:

        return Stepping(self._here, self._history.log, self._with_trash)

    @property
    def broken_off(self) -> bool:
        """Whether a restore was begun here that nobody ended."""
        try:
            self._capturing.refuse_unfinished_restore()
        except UnfinishedRestore:
            return True
        return False

    @property
    def changed(self) -> Snapshot | None:
        """Once something was changed here: the moment that holds what was here."""
        return self._restoring.changed

    def write_to(self, snapshot: Snapshot, directory: str, wish: RestoreOptions = NO_WISH) -> RestoreResult:
        """A moment, written into a directory of its own; nothing here is touched."""
        with self._told():
            self._history.with_contents(snapshot, TOP)
            written = self._restoring.write_to(snapshot, directory, wish)
        if not self._is_captured(directory):
            return written
        warning = f"'{directory}' is in the environment: the next capture holds it, too, unless .envhistignore names it"
        return replace(written, warnings=(*written.warnings, warning))

    def finish(self) -> ExecuteResult:
        """Finish a restore that was broken off."""
        with self._told():
            return self._restoring.go_on()

    def take_back(self) -> ExecuteResult:
        """Take back a restore that was broken off."""
        with self._told():
            return self._restoring.take_back()

    @staticmethod
    def ended(carried: ExecuteResult) -> RecoveryResult:
        """How it came to its end, as it is told outside."""
        return RecoveryResult(carried.undone, tuple(carried.kept), tuple(carried.losses))

    def give_back_attachments(self, snapshot: Snapshot, directory: str) -> list[str]:
        """Write what was attached to a moment into a directory."""
        from git_envhist.tracking.attachments import (  # loaded late: few snapshots have attachments
            read_attachments,
            write_attachments,
        )

        self._history.with_contents(snapshot, TOP)
        with CatFile(self._history.repository.git) as reader:
            return write_attachments(directory, read_attachments(reader, snapshot, self._open_attachment))

    def _go(self, wish: RestoreOptions, part: RestoreRole, choose: Choose) -> RestoreResult:
        effects: dict[SnapshotId, tuple[Effect, ...]] = {}

        def chosen(now: Now | None) -> Snapshot:
            target = choose(now)
            # Asked before anything changes: afterwards the directory that we stand in may be gone. And only when it is
            # known what is here: until then every processor is at work, and nobody waits for what is asked for early.
            if now is not None and target.id not in effects:
                effects[target.id] = self._effects_since(target)
            return target

        try:
            with self._told():
                how = self._bringing if wish.services else self._restoring
                restored = how.restore(wish, part, chosen)
            if restored.moment is not None:
                self._tidy(self._capturing.repository)
            return replace(restored, effects=effects.get(restored.target.id, ()))
        finally:
            self._history.refresh()

    def _effects_since(self, target: Snapshot) -> tuple[Effect, ...]:
        newest = self._history.log(FEW)
        is_near = len(newest) < FEW or any(one.id == target.id for one in newest)
        return effects_since(newest if is_near else self._history.log(), target.id)

    def _is_captured(self, directory: str) -> bool:
        if self._history.repository.bare:
            return False
        bases = self._capturing.read_scope(None).bases.values()
        inside = os.path.realpath(os.fsencode(directory)) + b"/"
        git_dir = os.path.realpath(os.fsencode(self._history.repository.git_dir)) + b"/"
        return not inside.startswith(git_dir) and any(
            inside.startswith(os.path.realpath(base).rstrip(b"/") + b"/") for base in bases
        )

    def _told(self) -> AbstractContextManager[None]:
        return system_errors(self._history.repository.git_dir)

    @property
    def _bringing(self) -> ServiceRestore:
        from git_envhist.restore.services import ServiceRestore  # loaded late: hardly anybody has services

        history = self._history
        return ServiceRestore(self._capturing, self._restoring, history.keys.to_open, history.log)

    def _open_attachment(self, name: EnvPath, sealed: bytes) -> bytes:
        return unseal(self._history.keys.to_open, name, b"attachment", sealed)
