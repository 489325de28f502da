"""`EnvHistory` as a program of others has it: it outlives a verb, tells what happens, and serves many threads."""

from __future__ import annotations

import os
from _thread import _local as local  # as `threading` has it, which brings more along
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from git_envhist.capturing.identity import agent_variables
from git_envhist.library.causing import Causing
from git_envhist.library.configured import HistoryContext
from git_envhist.library.events import Forget, Handler, Handlers, HistoryEvent
from git_envhist.library.looking import Looking
from git_envhist.library.rounds import Rounds
from git_envhist.library.showing import Showing
from git_envhist.model import AgentName, CaptureProgress, Moment, Snapshot
from git_envhist.spelling import replace_surrogates
from git_envhist.system import COPIES

if TYPE_CHECKING:
    from typing import Self, Unpack

    from git_envhist.beginning import InitKeywords
    from git_envhist.history.timeline import Catalog
    from git_envhist.opening import OpenedRepository

COPIES.watch()


class _ThreadCache(local):
    """What a verb has looked up, of each thread its own: what another one found earlier is not the world of now."""

    world: Catalog | None = None
    now: datetime | None = None


class EnvHistory(HistoryContext, Rounds, Causing, Looking, Showing):
    """The history of one environment, for as long as a program needs it, in as many threads as it has.

    >>> from git_envhist import EnvHistory
    >>> history = EnvHistory.open(".")
    >>> moment = history.capture("before auth refactor", verify="test -f app.py")
    >>> moment.verdict.status.value
    'pass'
    >>> [(one.intent, one.changed.added) for one in history.log(limit=1)]
    [('before auth refactor', 1)]
    """

    def __init__(
        self,
        opened: OpenedRepository,
        environ: Mapping[str, str],
        *,
        workers: str = "spawn",
        directory: str = ".",
    ) -> None:
        # From the beginning: two threads that ask first, at once, ask the same.
        self._handlers = Handlers(self._tell)
        self._seen = _ThreadCache()
        super().__init__(opened, environ, workers=workers, directory=directory)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.repository.root!r})"

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        environ: Mapping[str, str] | None = None,
        workers: str = "spawn",
        agent: AgentName | None = None,
        bare: bool = False,
    ) -> Self:
        """Return the history of the working tree that a directory is in.

        `agent`: the agent in whose name captures and tasks are recorded. `workers`: a host program is forked only with
        "fork". `bare`: open a bare repository too; its snapshots can be read, and written into a new directory.
        """
        history = super().open(
            os.fspath(directory), environ=_named(environ, agent), workers=workers, bare=bare
        )
        # A later chdir of the host program changes nothing.
        history.directory = os.path.abspath(history.directory)
        return history

    @classmethod
    def init(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        workers: str = "spawn",
        agent: AgentName | None = None,
        **wish: Unpack[InitKeywords],
    ) -> Self:
        """The history of a plain directory, begun where there is none; inside a git repository, that repository's.

        `storage`: where its repository is to be made; `adopt`: the name of a history, its repository, or where its
        directory was; `anew`: begun without it; `force`: also in a home directory; `environ`: as for `open`.
        """
        wish["environ"] = _named(wish.get("environ"), agent)
        history = super().init(os.fspath(directory), workers=workers, **wish)
        history.directory = os.path.abspath(history.directory)
        return history

    def on(self, event: str, handler: Handler) -> Forget:
        """Have a handler called whenever something happens (`HistoryEvent` says what); given back is what ends that.

        >>> heard = []
        >>> forget = history.on("captured", lambda captured: heard.append(captured.files))
        >>> _ = history.capture("heard")
        >>> forget()
        >>> _ = history.capture("not heard")
        >>> heard
        [1]
        """
        return self.handlers.add(event, handler)

    @property
    def handlers(self) -> Handlers:
        """Who wants to hear what happens."""
        return self._handlers

    def happened(self, event: str, *about: object) -> None:
        """Tell whoever wants to hear of it."""
        self.handlers.tell(event, *about)

    @property
    def progress(self) -> Callable[[CaptureProgress], None] | None:
        """Told how far a verb has come that was given nobody else to tell."""
        if not self.handlers.has(HistoryEvent.PROGRESS):
            return None
        return lambda progress: self.happened(HistoryEvent.PROGRESS, progress)

    def resolve(self, text: str) -> Snapshot:
        """The snapshot that some words mean now."""
        self.forget_world()
        return super().resolve(replace_surrogates(text))

    @property
    def world(self) -> Catalog:
        """All that a revision can speak of, as the verb that this thread is in has found it."""
        found = self._seen.world
        if found is None:
            found = self._seen.world = self._read_world()
        return found

    @property
    def now(self) -> datetime:
        """This moment, or the one that GIT_COMMITTER_DATE sets, the same for all that one verb does."""
        found = self._seen.now
        if found is None:
            found = self._seen.now = self._read_clock()
        return found

    def forget_world(self) -> None:
        """Words mean what is there now, and now is now."""
        self._seen.world = self._seen.now = None

    def _snapshot(self, revision: Moment) -> Snapshot:
        self.forget_world()
        return super()._snapshot(revision)

    def _snapshots(self, revisions: tuple[Moment, ...]) -> list[Snapshot]:
        self.forget_world()
        return super()._snapshots(revisions)

    def remove_name(self, name: str) -> Snapshot:
        """Take a name away from the moment that bears it."""
        self.forget_world()
        return super().remove_name(name)


def _named(environ: Mapping[str, str] | None, agent: AgentName | None) -> Mapping[str, str]:
    chosen = os.environ if environ is None else environ
    return chosen if agent is None else {**chosen, **agent_variables(agent)}
