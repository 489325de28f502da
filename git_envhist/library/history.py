"""`EnvHistory` as a program of others has it: it outlives a verb, tells what happens, and serves many threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from git_envhist.capturing.identity import agent_variables
from git_envhist.library.causing import Causing
from git_envhist.library.configured import Configured
from git_envhist.library.events import Event, Forget, Handler, Handlers
from git_envhist.library.looking import Looking
from git_envhist.library.rounds import Rounds
from git_envhist.library.showing import Showing
from git_envhist.model import Agent, Moment, Progress, Snapshot
from git_envhist.system import COPIES
from git_envhist.values import once

if TYPE_CHECKING:
    from typing import Self, Unpack

    from git_envhist.beginning import Beginning

COPIES.watch()


class EnvHistory(Configured, Rounds, Causing, Looking, Showing):
    """The history of one environment, for as long as a program needs it, in as many threads as it has.

    >>> from git_envhist import EnvHistory
    >>> history = EnvHistory.open(".")
    >>> moment = history.capture("before auth refactor", verify="test -f app.py")
    >>> moment.verdict.status.value
    'pass'
    >>> [(one.intent, one.changed.added) for one in history.log(limit=1)]
    [('before auth refactor', 1)]
    """

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        environ: Mapping[str, str] | None = None,
        workers: str = "spawn",
        agent: Agent | None = None,
    ) -> Self:
        """The history of the working tree that a directory is in.

        `agent`: in whose name captures and tasks are told. `workers`: a host program is never forked, as long as nobody
        says "fork" here.
        """
        return super().open(os.fspath(directory), environ=_named(environ, agent), workers=workers)

    @classmethod
    def init(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        workers: str = "spawn",
        agent: Agent | None = None,
        **wish: Unpack[Beginning],
    ) -> Self:
        """The history of a plain directory, begun where there is none; inside a git repository, that repository's.

        `storage`: where its repository is to be made.
        """
        wish["environ"] = _named(wish.get("environ"), agent)
        return super().init(os.fspath(directory), workers=workers, **wish)

    def on(self, event: str, handler: Handler) -> Forget:
        """Have a handler called whenever something happens (`Event` says what); given back is what ends that.

        >>> heard = []
        >>> forget = history.on("captured", lambda captured: heard.append(captured.files))
        >>> _ = history.capture("heard")
        >>> forget()
        >>> _ = history.capture("not heard")
        >>> heard
        [1]
        """
        return self.handlers.add(event, handler)

    @once
    def handlers(self) -> Handlers:
        """Who wants to hear what happens."""
        return Handlers(self._tell)

    def happened(self, event: str, *about: object) -> None:
        """Tell whoever wants to hear of it."""
        self.handlers.tell(event, *about)

    @property
    def progress(self) -> Callable[[Progress], None] | None:
        """Told how far a verb has come that was given nobody else to tell."""
        if not self.handlers.has(Event.PROGRESS):
            return None
        return lambda progress: self.happened(Event.PROGRESS, progress)

    def resolve(self, text: str) -> Snapshot:
        """The snapshot that some words mean now."""
        self.forget_world()
        return super().resolve(text)

    def forget_world(self) -> None:
        """Words mean what is there now, and now is now."""
        super().forget_world()
        self.__dict__.pop("now", None)

    def _snapshot(self, revision: Moment) -> Snapshot:
        self.forget_world()
        return super()._snapshot(revision)


def _named(environ: Mapping[str, str] | None, agent: Agent | None) -> Mapping[str, str]:
    chosen = os.environ if environ is None else environ
    return chosen if agent is None else {**chosen, **agent_variables(agent)}
