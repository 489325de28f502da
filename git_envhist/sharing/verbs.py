"""What a history can do with others: push, fetch, export, import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from git_envhist.core import FETCH
from git_envhist.lookup import as_sequence
from git_envhist.model import TOP
from git_envhist.store.fetched import seeing_fetched, without_fetched

PUSH = "another push"

if TYPE_CHECKING:
    from collections.abc import Sequence

    from git_envhist.api import EnvHistory
    from git_envhist.model.sharing import ExportResult, FetchResult, ImportResult, PushResult
    from git_envhist.settings import Settings
    from git_envhist.sharing.signing import Signing
    from git_envhist.store.repository import Repository


class Sharing:
    """The part of a history that others see, and that came from them."""

    repository: Repository

    def push(  # type: ignore[misc]
        self: EnvHistory,
        remote: str | None = None,
        *timelines: str,
        delete: Sequence[str] = (),
        allow: Sequence[str | bytes | os.PathLike[str]] = (),
        yes: bool = False,
        dry_run: bool = False,
        most: int | None = None,
    ) -> PushResult:
        """Send timelines (this working tree's, where none is named) with their notes and names to a remote.

        The first push there lists what would leave in the clear and is refused without `yes`; `dry_run` tells the same
        and sends nothing. `delete`: timelines that are taken away there; `allow`: paths that may leave with a token
        in them, or too large; `most`: so many bytes at once at most. What is refused is sent nowhere.

        >>> import subprocess
        >>> _ = subprocess.run(["git", "init", "-q", "--bare", "../shared.git"], check=True)
        >>> _ = history.capture("to be shared")
        >>> history.push("../shared.git", dry_run=True).first
        True
        >>> history.push("../shared.git")
        Traceback (most recent call last):
            ...
        git_envhist.sharing.refusals.FirstPush: the first push to 'shared-...' (...): nothing was sent
        >>> [one.outcome.value for one in history.push("../shared.git", yes=True).timelines]
        ['new']
        """
        from git_envhist.sharing.push import PushOptions, push  # loaded late: most commands send nothing

        paths = tuple(map(os.fsencode, as_sequence(allow)))
        wish = PushOptions(remote, timelines, as_sequence(delete), paths, yes, dry_run, most)
        self._remotes_are_of_now()
        return push(
            self.repository,
            self._environ,
            self.directory,
            self.timeline,
            wish,
            self._waits_for(PUSH),
            self.step,
            self._signing(),
        )

    def _signing(self: EnvHistory) -> Signing:  # type: ignore[misc]
        from git_envhist.capturing.identity import current_actor, signature  # loaded late: likewise
        from git_envhist.sharing.signing import Signing  # loaded late: likewise
        from git_envhist.store.sshsign import SshSettings  # loaded late: likewise

        ssh = SshSettings.of(self.repository.read_config())
        line = signature(current_actor(self.settings, self._environ), self.now)
        current = self.keys.current_id()
        key = self.keys.get(current) if current is not None else None
        return Signing(key, ssh, self._environ, line, self.keys)

    def fetch(  # type: ignore[misc]
        self: EnvHistory, remote: str | None = None, *, full: bool = False, accept_rollback: bool = False
    ) -> FetchResult:
        """Bring the timelines of a remote beside ours; `full`: with all their contents.

        A timeline that is not as its head was signed is refused (`FetchResult.bad`) without `accept_rollback`.
        """
        from git_envhist.sharing.fetch import fetch  # loaded late: likewise

        self._remotes_are_of_now()
        waiting = self._waits_for(FETCH)
        done = fetch(
            self.repository,
            self._environ,
            self.directory,
            remote,
            full=full,
            find_key=self.keys.get,
            accept_rollback=accept_rollback,
            waiting=waiting,
            step=self.step,
        )
        self._came()
        return done

    def export(  # type: ignore[misc]
        self: EnvHistory,
        file: str | os.PathLike[str],
        *revisions: str,
        force: bool = False,
        allow: Sequence[str | bytes | os.PathLike[str]] = (),
    ) -> ExportResult:
        """Write moments (revisions, ranges; none: all of this timeline) with notes and names into a file.

        `force`: over a file that is there; `allow`: paths that may leave with a token in them.

        >>> _ = history.capture("to go along", name="there")
        >>> history.export("../moments.envhist.tar.zst", "there").timelines[0][1][0].intent
        'to go along'
        >>> [(came, moments) for _, came, moments in history.import_("../moments.envhist.tar.zst").timelines]
        [(<Arrival.NEW: 'new'>, 1)]
        """
        from git_envhist.capturing.identity import current_actor, signature  # loaded late: likewise
        from git_envhist.sharing.exporting import ExportOptions, choose, export  # loaded late: likewise

        self.forget_world()
        chosen = choose(revisions, self.world, self.now)
        for snapshot in chosen:
            self.bring(snapshot, TOP)
        line = signature(current_actor(self.settings, self._environ), self.now)
        wish = ExportOptions(force, tuple(map(os.fsencode, as_sequence(allow))))
        waiting = self._waits_for("another export")
        return export(self.repository, os.fspath(file), chosen, self.world, self.keys, line, wish, waiting)

    def import_(  # type: ignore[misc]
        self: EnvHistory, file: str | os.PathLike[str], *, name: str | None = None
    ) -> ImportResult:
        """Bring what a file of an export holds in beside ours, as `<name>/<timeline>`."""
        from git_envhist.sharing.importing import import_archive  # loaded late: likewise

        self._remotes_are_of_now()
        done = import_archive(self.repository, os.fspath(file), name, self._tell, self._waits_for(FETCH))
        self._came()
        return done

    def _remotes_are_of_now(self: EnvHistory) -> Settings:  # type: ignore[misc]
        # Whoever keeps a history open reads git's configuration again where settings are asked for.
        return self.settings

    def _came(self: EnvHistory) -> None:  # type: ignore[misc]
        self.repository = seeing_fetched(without_fetched(self.repository))
        self.forget_world()
