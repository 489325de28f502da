"""The verbs: everything that the programs do goes through here.

Each room has a class with its verbs, on top of `HistoryContext`; here they become one, and a history is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from git_envhist.capturing.verbs import Taking
from git_envhist.doing import Doing
from git_envhist.doing.keeping import Keeping
from git_envhist.keeping import Retaining
from git_envhist.lookup import refuse_unknown
from git_envhist.model import EnvPath, Moment, Trigger
from git_envhist.moments import Moments
from git_envhist.opening import open_repository
from git_envhist.sharing.verbs import Sharing
from git_envhist.store.durable import system_errors
from git_envhist.upkeep import Upkeep

if TYPE_CHECKING:
    from typing import Self, Unpack

    from git_envhist.beginning import InitKeywords
    from git_envhist.model import CaptureProgress, ForkPlan


class EnvHistory(Taking, Moments, Keeping, Doing, Upkeep, Sharing, Retaining):
    """The history of one environment."""

    @classmethod
    def open(
        cls,
        directory: str = ".",
        *,
        environ: Mapping[str, str] | None = None,
        workers: str = "spawn",
        bare: bool = False,
    ) -> Self:
        """Return the history of the working tree that a directory is in.

        `workers`: a program of our own may be forked ("fork"), a host program must not be ("spawn").
        `bare`: open a bare repository too; its snapshots can be read and written into a new directory (`write_to`).
        """
        chosen = os.environ if environ is None else environ
        with system_errors(directory):
            opened = open_repository(directory, chosen, bare=bare)
            return cls(opened, chosen, workers=workers, directory=directory)

    @classmethod
    def init(cls, directory: str = ".", *, workers: str = "spawn", **wish: Unpack[InitKeywords]) -> Self:
        """The history of a plain directory, begun where there is none; inside a git repository, that repository's."""
        from git_envhist.beginning import InitKeywords, init_history  # loaded late: keeps envlog fast

        refuse_unknown("init", wish, InitKeywords.__annotations__)
        given = wish.get("environ")
        chosen = os.environ if given is None else given
        with system_errors(directory):
            return cls(init_history(directory, chosen, wish), chosen, workers=workers, directory=directory)

    def fork(
        self,
        revision: Moment,
        directory: str | os.PathLike[str],
        *,
        branch: str | None = None,
        relocate: bool = False,
        foreign: bool = False,
        trigger: Trigger = Trigger.API,
        progress: Callable[[CaptureProgress], None] | None = None,
    ) -> Self:
        """A directory of its own that holds the environment of a moment, on a timeline that begins there.

        `branch`: made for it at the code commit of the moment; `relocate`: what names the old place is rewritten in it;
        `foreign`: also of what no key that is here signed. What was made stands in `.forked`.

        >>> moment = history.capture("to try two ways from")
        >>> attempt = history.fork(moment, "../attempt", branch="attempt")
        >>> attempt.forked.branch, attempt.forked.exact, attempt.log(limit=1)[0].intent
        ('attempt', True, 'forked from ...')
        """
        from git_envhist.forking.fork import ForkOptions, fork  # loaded late: keeps envlog fast

        wish = ForkOptions(branch, relocate, foreign, trigger, progress or self.progress)
        source = self.judge(self._snapshot(revision))
        self.bring(source, EnvPath(b""))
        made, opened = fork(self._seeing, self.open_sealed, source, os.fspath(directory), wish)
        history = type(self)(opened, self._environ, workers=self._workers, directory=made.root)
        history.forked = made
        self.happened("forked", history)
        return history

    def plan_fork(
        self,
        revision: Moment,
        directory: str | os.PathLike[str],
        *,
        branch: str | None = None,
        relocate: bool = False,
        foreign: bool = False,
    ) -> ForkPlan:
        """What `fork` would do with these arguments, refused as it would be; nothing is written."""
        from git_envhist.forking.fork import ForkOptions, plan_fork  # loaded late: keeps envlog fast

        source = self.judge(self._snapshot(revision))
        return plan_fork(self._seeing, source, os.fspath(directory), ForkOptions(branch, relocate, foreign))
