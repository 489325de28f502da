"""What a history can do with others: push, fetch, export, import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_envhist.model import TOP
from git_envhist.store.fetched import seeing_fetched, without_fetched

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.sharing.exporting import Exported, ExportWish
    from git_envhist.sharing.fetch import Fetch
    from git_envhist.sharing.importing import Imported
    from git_envhist.sharing.push import PushWish
    from git_envhist.sharing.refusals import Pushed
    from git_envhist.store.repository import Repository


class Sharing:
    """The part of a history that others see, and that came from them."""

    repository: Repository

    def push(self: EnvHistory, wish: PushWish | None = None) -> Pushed:  # type: ignore[misc]
        """Send timelines with their notes and names to a remote; what is refused is sent nowhere."""
        from git_envhist.sharing.push import PushWish, push  # loaded late: most commands send nothing

        return push(self.repository, self._environ, self.directory, self.timeline, wish or PushWish())

    def fetch(self: EnvHistory, remote: str | None = None, *, full: bool = False) -> Fetch:  # type: ignore[misc]
        """Bring the timelines of a remote beside ours; `full`: with all their contents."""
        from git_envhist.sharing.fetch import fetch  # loaded late: likewise

        done = fetch(self.repository, self._environ, self.directory, remote, full=full)
        self._came()
        return done

    def export(  # type: ignore[misc]
        self: EnvHistory, file: str, *revisions: str, wish: ExportWish | None = None
    ) -> Exported:
        """Write moments (revisions, ranges; none: all of this timeline) with notes and names into a file."""
        from git_envhist.capturing.identity import signature, who_am_i  # loaded late: likewise
        from git_envhist.sharing.exporting import ExportWish, choose, export  # loaded late: likewise

        chosen = choose(revisions, self.world, self.now)
        for snapshot in chosen:
            self.bring(snapshot, TOP)
        line = signature(who_am_i(self.settings, self._environ), self.now)
        return export(self.repository, file, chosen, self.world, self.keys.get, line, wish or ExportWish())

    def import_(self: EnvHistory, file: str, *, name: str | None = None) -> Imported:  # type: ignore[misc]
        """Bring what a file of an export holds in beside ours, as `<name>/<timeline>`."""
        from git_envhist.sharing.importing import take_in  # loaded late: likewise

        done = take_in(self.repository, file, name, self._tell)
        self._came()
        return done

    def _came(self: EnvHistory) -> None:  # type: ignore[misc]
        self.repository = seeing_fetched(without_fetched(self.repository))
        self.forget_world()
