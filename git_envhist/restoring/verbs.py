"""The verbs of going back, as `EnvHistory` has them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from git_envhist.capture.seal import unseal
from git_envhist.capturing.timelines import current_timeline
from git_envhist.errors import UnfinishedRestore
from git_envhist.history.doings import effects_since
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
from git_envhist.restoring.here import Choose, Now, RestoreContext
from git_envhist.restoring.restore import RestoreRunner
from git_envhist.restoring.wish import NO_WISH, RestoreOptions
from git_envhist.store.durable import system_errors
from git_envhist.store.objects import CatFile
from git_envhist.values import replace

if TYPE_CHECKING:
    from git_envhist.capturing.capture import CapturePipeline
    from git_envhist.restoring.carrying import ExecuteResult
    from git_envhist.restoring.stepping import Stepping, WithTrash
    from git_envhist.services.bringing import ServiceRestore
    from git_envhist.store.keys import KeyRing
    from git_envhist.store.repository import Repository


class HistoryContext(Protocol):
    """What the verbs need of a history."""

    @property
    def keys(self) -> KeyRing: ...
    @property
    def repository(self) -> Repository: ...
    def forget_world(self) -> None: ...
    def log(self, limit: int | None = None, timeline: str | None = None) -> list[Snapshot]: ...
    def resolve(self, text: str) -> Snapshot: ...
    def judge(self, snapshot: Snapshot) -> Snapshot: ...
    def bring(self, snapshot: Snapshot, *paths: EnvPath) -> Snapshot: ...
    def open_sealed(self, path: EnvPath, blob: bytes) -> bytes: ...


FEW = 50
"""Most restores go no further back than so many moments."""


class Restorer:
    """Back, forth, elsewhere."""

    def __init__(self, history: HistoryContext, capturing: CapturePipeline, with_trash: WithTrash) -> None:
        self._history = history
        self._capturing = capturing
        here = RestoreContext(capturing, history.judge, history.open_sealed, history.resolve)
        self._with_trash = with_trash
        self._here = here
        self._restoring = RestoreRunner(here)

    def to(self, snapshot: Snapshot, wish: RestoreOptions = NO_WISH) -> RestoreResult:
        """To a moment."""
        if wish.foreign or self._history.judge(snapshot).trusted:
            self._history.bring(snapshot, TOP)
        restored = self._go(wish, RestoreRole.TO, lambda _: snapshot)
        here = self._capturing
        if restored.target.timeline == current_timeline(here.repository, here.settings):
            return restored
        from git_envhist.forking.adopting import warn_of_foreign_paths  # loaded late: hardly ever needed

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
        from git_envhist.restoring.stepping import Stepping  # loaded late: undo and redo alone

        return Stepping(self._here, self._history.log, self._with_trash)

    @property
    def broken_off(self) -> bool:
        """Whether a restore was begun here that nobody ended."""
        try:
            self._capturing.refuse_broken_off()
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
            self._history.bring(snapshot, TOP)
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
        from git_envhist.restoring.attachments import (  # loaded late: it alone
            read_attachments,
            write_attachments,
        )

        self._history.bring(snapshot, TOP)
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
                from git_envhist.capturing.tidying import (  # loaded late: when all is done
                    AFTER_RESTORE,
                    merge_packs_after,
                )

                merge_packs_after(self._capturing.repository, AFTER_RESTORE)
            return replace(restored, effects=effects.get(restored.target.id, ()))
        finally:
            self._history.forget_world()

    def _effects_since(self, target: Snapshot) -> tuple[Effect, ...]:
        newest = self._history.log(FEW)
        is_near = len(newest) < FEW or any(one.id == target.id for one in newest)
        return effects_since(newest if is_near else self._history.log(), target.id)

    def _is_captured(self, directory: str) -> bool:
        if self._history.repository.bare:
            return False
        bases = self._capturing.survey(None).bases.values()
        inside = os.path.realpath(os.fsencode(directory)) + b"/"
        git_dir = os.path.realpath(os.fsencode(self._history.repository.git_dir)) + b"/"
        return not inside.startswith(git_dir) and any(
            inside.startswith(os.path.realpath(base).rstrip(b"/") + b"/") for base in bases
        )

    def _told(self) -> AbstractContextManager[None]:
        return system_errors(self._history.repository.git_dir)

    @property
    def _bringing(self) -> ServiceRestore:
        from git_envhist.services.bringing import ServiceRestore  # loaded late: hardly anybody has services

        history = self._history
        return ServiceRestore(self._capturing, self._restoring, history.keys.to_open, history.log)

    def _open_attachment(self, name: EnvPath, sealed: bytes) -> bytes:
        return unseal(self._history.keys.to_open, name, b"attachment", sealed)
