"""How a history is kept in order: what nothing needs goes, what holds the space is told, whether all of it is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_envhist.core import HistoryContext
from git_envhist.store.fetched import is_fetched
from git_envhist.store.repository import TRASH
from git_envhist.values import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from git_envhist.api import EnvHistory
    from git_envhist.model import DiskUsage, FsckReport, GcResult, Moment


class Upkeep(HistoryContext):
    """The part of a history that keeps it in order."""

    def gc(  # type: ignore[misc]
        self: EnvHistory,
        prune: str | None = None,
        *,
        empty_trash: bool = False,
        force: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> GcResult:
        """Take away what nothing reaches, and pack the rest well.

        `prune`: what nothing reaches goes where its pack was not used since then (`now`, `never`, `3 days ago`; two
        weeks ago where it is not said). `empty_trash`: dropped snapshots go for good first, and `prune` is `now`.
        `force`: ignore a git of another user if the system hides in which repository it works.
        """
        from git_envhist.upkeep.cleaning import clean  # loaded late: keeps envlog fast

        if empty_trash:
            self.dropping.empty_trash()
            self.forget_world()
            prune = prune or "now"
        repository = replace(self._capturing.repository, ignores_hidden=force)
        return clean(repository, prune, tell or _say_nothing)

    def fsck(
        self, *, quick: bool = False, repair: bool = False, tell: Callable[[str], None] | None = None
    ) -> FsckReport:
        """Whether every snapshot is whole, to the last byte; `quick`: whether all that they need is there.

        `repair`: what is lost is brought back where it can be, what cannot is set aside; nothing is deleted.
        """
        from git_envhist.upkeep.trouble import forget_trouble  # loaded late: likewise

        if repair:
            from git_envhist.upkeep.repairing import Repair  # loaded late: hardly ever

            health = Repair(self, self._capturing, tell or _say_nothing).run()
        else:
            from git_envhist.upkeep.checking import check  # loaded late: keeps envlog fast

            found = check(self._capturing.repository, quick=quick, tell=tell or _say_nothing)
            health = found.health(quick=quick)
        if health.is_whole and not quick:
            forget_trouble(self.repository.common_state)
        self.forget_world()
        return health

    def du(  # type: ignore[misc]
        self: EnvHistory,
        *revisions: Moment,
        paths: Sequence[bytes] = (),
        tell: Callable[[str], None] | None = None,
    ) -> DiskUsage:
        """What holds the space: moments, directories, classes, and what each of them alone would free.

        `revisions`: what dropping these would free together; `paths`: what the history would lose without them.
        """
        from git_envhist.upkeep.space import SnapshotSet, measure  # loaded late: keeps envlog fast

        lines = {name: self.log(timeline=name) for name in self.timelines() if not is_fetched(name)}
        repository = self._capturing.repository
        trash = list(repository.list_refs(TRASH).values())
        told = repository.git.run("rev-list", *trash).split() if trash else []
        chosen = self._snapshots(revisions)
        moments = SnapshotSet(lines, [one.decode("ascii") for one in told])
        return measure(repository, moments, chosen, paths, tell or _say_nothing)

    @property
    def trouble(self) -> list[str]:
        """What the daily check found wrong, a sentence each."""
        from git_envhist.upkeep.trouble import read_trouble  # loaded late: keeps a capture fast

        return read_trouble(self.repository.common_state)

    def daily(self: EnvHistory) -> None:  # type: ignore[misc]
        """What is done by itself once a day, and only as far as it is worth it; who is in the way is left alone."""
        from git_envhist.upkeep.cleaning import daily  # loaded late: once a day

        daily(self._capturing.repository, self.thin)


def _say_nothing(_: str) -> None:
    pass
