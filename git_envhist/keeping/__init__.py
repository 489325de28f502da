"""What is kept and what goes: moments let go and brought back, thinned by a policy, paths erased from all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from git_envhist.core import Core
from git_envhist.lookup import path_below
from git_envhist.values import once

if TYPE_CHECKING:
    from git_envhist.history.retention import Policy
    from git_envhist.keeping.dropping import Dropped, Dropping
    from git_envhist.keeping.pruning import Pruned, Pruning
    from git_envhist.keeping.purging import Purged
    from git_envhist.model import Moment, Snapshot


class Retaining(Core):
    """The part of a history that lets go."""

    def drop(self, *revisions: Moment, dry_run: bool = False) -> Dropped:
        """Let moments go: for 30 days `undrop` brings them back; ranges are all moments in them."""
        return self.dropping.drop(self._snapshots(revisions), dry_run=dry_run)

    def undrop(self, *revisions: str) -> Dropped:
        """Bring back what was let go."""
        return self.dropping.undrop([self.dropping.find(one) for one in revisions])

    def prune(self, policy: Policy | None = None, *, every: bool = False, dry_run: bool = False) -> Pruned:
        """Thin the timeline (`every`: all of this repository) by a policy, the configured one where none is given."""
        from git_envhist.keeping.pruning import own_timelines, policy_of  # loaded late: keeps envlog fast

        names = own_timelines(self) if every else [self.timeline] if self.timeline else []
        return self.pruning.prune(policy or policy_of(self.settings), names, dry_run=dry_run)

    def thin(self) -> None:
        """What is done by itself once a day: by what is configured, within `envhist.maxSize`."""
        from git_envhist.keeping.pruning import Pruning  # loaded late: once a day

        Pruning(self, gentle=True).by_itself()

    def purge(self, *paths: str | os.PathLike[str], dry_run: bool = False) -> Purged:
        """Erase paths of the environment from every snapshot and the trash, for good; nothing brings them back."""
        from git_envhist.keeping.purging import Purging  # loaded late: keeps envlog fast

        top, here = os.fsencode(self.repository.root), os.fsencode(self.directory)
        meant = [path_below(top, here, os.fsencode(path)) for path in paths]
        return Purging(self).purge(meant, dry_run=dry_run)

    @once
    def pruning(self) -> Pruning:
        """What thins the timelines."""
        from git_envhist.keeping.pruning import Pruning  # loaded late: likewise

        return Pruning(self)

    @once
    def dropping(self) -> Dropping:
        """The trash, and the way into it."""
        from git_envhist.keeping.dropping import Dropping  # loaded late: keeps envlog fast

        return Dropping(self)

    def _snapshots(self, revisions: tuple[Moment, ...]) -> list[Snapshot]:
        """The moments that are meant, each once, in the order of the words."""
        from git_envhist.history.ranges import between, resolve_range  # loaded late: likewise

        found: dict[str, Snapshot] = {}
        for one in revisions:
            if isinstance(one, str) and ".." in one:
                span = resolve_range(one, self.world, self.now)
                some = list(between(span, self.world.own)) if span.start is not None else [self.resolve(one)]
            else:
                some = [self._snapshot(one)]
            found.update({snapshot.id: snapshot for snapshot in some})
        return list(found.values())
