"""What is kept and what goes: moments let go and brought back, thinned by a policy, paths erased from all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from git_envhist.core import HistoryContext
from git_envhist.lookup import path_below
from git_envhist.values import once

if TYPE_CHECKING:
    from git_envhist.keeping.dropping import SnapshotDropper
    from git_envhist.keeping.pruning import Pruner
    from git_envhist.model import Moment, Snapshot
    from git_envhist.model.keeping import DropResult, PruneResult, PurgeResult


class Retaining(HistoryContext):
    """The part of a history that lets go."""

    def drop(self, *revisions: Moment, dry_run: bool = False) -> DropResult:
        """Let moments go: for 30 days `undrop` brings them back; ranges are all moments in them."""
        return self.dropping.drop(self._snapshots(revisions), dry_run=dry_run)

    def undrop(self, *revisions: str) -> DropResult:
        """Bring back what was let go."""
        return self.dropping.undrop([self.dropping.find(one) for one in revisions])

    def prune(
        self,
        *,
        keep_last: int | None = None,
        keep_hourly: int | None = None,
        keep_daily: int | None = None,
        keep_weekly: int | None = None,
        every: bool = False,
        dry_run: bool = False,
    ) -> PruneResult:
        """Thin the timeline (`every`: all of this repository) by a policy; what somebody said something of stays.

        Kept are the newest `keep_last`, as many of those that somebody gave words, and of so many hours, days and
        weeks the newest each, one with words before what came by itself. Where one of them is said, the others count
        as none; where none is, `envhist.keep*` says. What goes lies in the trash for 30 days.

        >>> for number in range(4):
        ...     _ = history.capture(f"step {number}")
        >>> pruned = history.prune(keep_last=2, dry_run=True)
        >>> pruned.gone, [(one.snapshot.intent, one.why) for one in pruned.timelines[0].decisions][1:3]
        (2, [('step 2', 'last 2'), ('step 1', 'nothing keeps it')])
        >>> history.prune(keep_last=2).gone, len(history.log())
        (2, 2)
        """
        from git_envhist.keeping.pruning import (  # loaded late: keeps envlog fast
            own_timelines,
            policy_from_options,
            policy_of,
        )

        names = own_timelines(self) if every else [self.timeline] if self.timeline else []
        policy = policy_from_options(keep_last, keep_hourly, keep_daily, keep_weekly) or policy_of(
            self.settings
        )
        return self.pruning.prune(policy, names, dry_run=dry_run)

    def thin(self) -> None:
        """What is done by itself once a day: by what is configured, within `envhist.maxSize`."""
        from git_envhist.keeping.pruning import Pruner  # loaded late: once a day

        Pruner(self, gentle=True).by_itself()

    def purge(
        self,
        *paths: str | os.PathLike[str],
        variable_names: bool = False,
        dry_run: bool = False,
        force: bool = False,
    ) -> PurgeResult:
        """Erase paths of the environment from every snapshot and the trash, for good; nothing brings them back.

        `variable_names`: erase the names of variables that earlier versions stored without sealing them. `force`:
        ignore a git of another user if the system hides in which repository it works.
        """
        from git_envhist.keeping.purging import Purger  # loaded late: keeps envlog fast

        top, here = os.fsencode(self.repository.root), os.fsencode(self.directory)
        meant = [path_below(top, here, os.fsencode(path)) for path in paths]
        return Purger(self).purge(meant, variable_names=variable_names, dry_run=dry_run, force=force)

    @once
    def pruning(self) -> Pruner:
        """What thins the timelines."""
        from git_envhist.keeping.pruning import Pruner  # loaded late: likewise

        return Pruner(self)

    @once
    def dropping(self) -> SnapshotDropper:
        """The trash, and the way into it."""
        from git_envhist.keeping.dropping import SnapshotDropper  # loaded late: keeps envlog fast

        return SnapshotDropper(self)

    def _snapshots(self, revisions: tuple[Moment, ...]) -> list[Snapshot]:
        """The moments that are meant, each once, in the order of the words."""
        from git_envhist.history.ranges import resolve_range, snapshots_in_range  # loaded late: likewise

        found: dict[str, Snapshot] = {}
        for one in revisions:
            if isinstance(one, str) and ".." in one:
                span = resolve_range(one, self.world, self.now)
                some = (
                    list(snapshots_in_range(span, self.world.own))
                    if span.start is not None
                    else [self.resolve(one)]
                )
            else:
                some = [self._snapshot(one)]
            found.update({snapshot.id: snapshot for snapshot in some})
        return list(found.values())
