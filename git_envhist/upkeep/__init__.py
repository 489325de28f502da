"""How a history is kept in order: what nothing needs goes, what holds the space is told, whether all of it is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_envhist.core import Core

if TYPE_CHECKING:
    from collections.abc import Callable

    from git_envhist.api import EnvHistory
    from git_envhist.model import Collected


class Upkeep(Core):
    """The part of a history that keeps it in order."""

    def gc(self, prune: str | None = None, *, tell: Callable[[str], None] | None = None) -> Collected:
        """Take away what nothing reaches, and pack the rest well.

        `prune`: what nothing reaches goes where its pack was not used since then (`now`, `never`, `3 days ago`; two
        weeks ago where it is not said).
        """
        from git_envhist.upkeep.cleaning import clean  # loaded late: keeps envlog fast

        return clean(self._capturing.repository, prune, tell or _say_nothing)

    def daily(self: EnvHistory) -> None:  # type: ignore[misc]
        """What is done by itself once a day, and only as far as it is worth it; who is in the way is left alone."""
        from git_envhist.upkeep.cleaning import daily  # loaded late: once a day

        daily(self._capturing.repository, self.thin)


def _say_nothing(_: str) -> None:
    pass
