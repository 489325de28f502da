"""The verbs of going back, as `EnvHistory` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from git_envhist.core import HistoryContext
from git_envhist.model import Moment, Snapshot, SnapshotId
from git_envhist.values import once, replace

if TYPE_CHECKING:
    import os
    from typing import Unpack

    from git_envhist.model import RecoveryResult, RestorePlan, RestoreResult
    from git_envhist.restoring.verbs import Restorer
    from git_envhist.restoring.wish import RestoreKeywords, RestoreOptions
    from git_envhist.verifying.verbs import Checks


class Returning(HistoryContext):
    """Back to a moment, and forth again."""

    @overload
    def restore(
        self,
        revision: Moment,
        *,
        dry_run: Literal[True],
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestorePlan: ...

    @overload
    def restore(
        self,
        revision: Moment,
        *,
        dry_run: Literal[False] = False,
        verify: bool | str = False,
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestoreResult: ...

    def restore(
        self,
        revision: Moment,
        *,
        dry_run: bool = False,
        verify: bool | str = False,
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestoreResult | RestorePlan:
        """Go back to a moment; what is here is saved first, `undo` brings it back. A dry run gives the plan alone.

        `verify`: then run this command, or the check that the moment was judged by; `RestoreResult.checked` says what
        came of it, and where it did not pass, `undo` is the way back.

        What can be asked for by name, as `git envrestore` has it: `paths` (git's pathspecs, as from the top) and `only`
        (packages, env, databases, files) choose; `keep_new` removes nothing, `keep_code` leaves what HEAD tracks;
        `head` also moves HEAD; `relocate` rewrites what names another place; `services` brings their state along;
        `force` and `foreign` override a refusal that names them (`roots`: in additional roots too). Called: `progress`,
        how far it is; `waiting`, somebody else holds the environment; `plan_text`, with the plan, before anything is
        saved (what it raises stops the restore); `saved`, with the moment that holds what was here. `wish`: all of it
        as one value.
        """
        snapshot = self._snapshot(revision)
        if dry_run:
            return self.going.to(snapshot, self._wish(wished, wish, dry_run=True)).plan
        # Whether there is a check at all is known before anything is changed.
        # What a capture gave was read before it was checked.
        command = self.checks.recorded(self.resolve(snapshot.id)) if verify is True else verify or None
        restored = self._told_of(self.going.to(snapshot, self._wish(wished, wish)))
        return restored if command is None else self._checked(restored, command)

    def foresee(self, revision: Moment, **wished: Unpack[RestoreKeywords]) -> RestoreResult:
        """What a restore would come to: its plan, and all that goes with it or would not; nothing is changed.

        It is asked by the same names as `restore`.
        """
        return self.going.to(self._snapshot(revision), self._wish(wished, dry_run=True))

    def write_to(
        self, revision: Moment, directory: str | os.PathLike[str], **wished: Unpack[RestoreKeywords]
    ) -> RestoreResult:
        """Write a moment into a directory of its own; nothing here is touched.

        It is asked by the same names as `restore`, as far as they have a meaning there.
        """
        return self.going.write_to(self._snapshot(revision), str(directory), self._wish(wished))

    def undo(self, steps: int = 1, **wished: Unpack[RestoreKeywords]) -> RestoreResult:
        """Go to the newest earlier state that differs from what is here now, so many steps back.

        It is asked by the same names as `restore`.
        """
        return self._told_of(self.going.undo(steps, self._wish(wished)))

    def redo(self, steps: int = 1, **wished: Unpack[RestoreKeywords]) -> RestoreResult:
        """Go forth again, where nothing new has come since the last undo; asked by the same names as `restore`."""
        return self._told_of(self.going.redo(steps, self._wish(wished)))

    def finish_restore(self) -> RecoveryResult:
        """Finish a restore that was broken off."""
        return self.going.ended(self.going.finish())

    def take_back_restore(self) -> RecoveryResult:
        """Take back a restore that was broken off: the environment is as it was before it."""
        return self.going.ended(self.going.take_back())

    @once
    def going(self) -> Restorer:
        """Back, forth, and what goes with it."""
        from git_envhist.restoring.verbs import Restorer  # loaded late: keeps envlog fast

        def with_trash(timeline: str) -> tuple[list[Snapshot], frozenset[SnapshotId]]:
            from git_envhist.keeping.dropping import SnapshotDropper  # loaded late: hardly any undo meets one

            return SnapshotDropper(self).line_with_trash(timeline)

        return Restorer(self, self._seeing, with_trash)

    def _wish(
        self, wished: RestoreKeywords, wish: RestoreOptions | None = None, *, dry_run: bool = False
    ) -> RestoreOptions:
        from git_envhist.restoring.wish import restore_options  # loaded late: keeps envlog fast

        if self.progress is not None:
            wished.setdefault("progress", self.progress)
        return restore_options(wish, wished, dry_run)

    @once
    def checks(self) -> Checks:
        """Checks, and what they came to."""
        from git_envhist.verifying.verbs import Checks  # loaded late: most captures check nothing

        return Checks(self, self._capturing)

    def _checked(self, restored: RestoreResult, command: str) -> RestoreResult:
        checked = self.checks.after_restore(restored, command)
        self.happened("verified", checked)
        return replace(restored, checked=checked)

    def _told_of(self, restored: RestoreResult) -> RestoreResult:
        self.happened("restored", restored)
        return restored
