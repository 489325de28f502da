"""`git envrestore --services`: the services stop, the environment goes back, each is given its state, they start.

What they hold now is saved first, with the moment that saves the environment; where that cannot be had, nothing
starts. All that can be refused is refused before anything is stopped. Commands are the user's own, from git's
configuration; what a snapshot holds is data for them, and of somebody else's snapshot not even that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO

from git_envhist.capture.pipeline import CaptureOptions, CapturePipeline
from git_envhist.config import Service
from git_envhist.disk import state_directory
from git_envhist.errors import EnvhistError, Refused, UnfinishedRestore
from git_envhist.git.cat_file import CatFile
from git_envhist.lazy import dataclass, replace
from git_envhist.model import EnvPath, RestoreResult, RestoreRole, SkippedPath, Snapshot
from git_envhist.restore.operation import Choose, RestoreRunner
from git_envhist.restore.options import RestoreOptions
from git_envhist.services import FindKey, ServiceCommandContext, kept_services, read_state, run

NO_STATE = "that moment holds no state of it"
NO_COMMAND = "nothing says how it is restored: envhist.service.<name>.restore"


@dataclass(frozen=True, slots=True)
class ServiceRestore:
    """One working tree with its services."""

    capturing: CapturePipeline
    restoring: RestoreRunner
    find_key: FindKey
    log: Callable[[], Sequence[Snapshot]]

    def restore(self, wish: RestoreOptions, part: RestoreRole, choose: Choose) -> RestoreResult:
        """Go to a moment, with the services."""
        if not self._services:
            raise Refused(
                "no service is configured here", hint="git config envhist.service.<name>.dump '<command>'"
            )
        planned = self.restoring.restore(replace(wish, dry_run=True, planned=None), part, choose)
        target = planned.target
        if target.trusted is False:
            raise Refused(
                f"no key that is here signed '{target.id[:7]}': its services are not brought here",
                hint="without --services its files can be restored",
            )
        source = self._source(target, part)
        states = self._states(source)
        self._refuse_unsaved(states)
        if wish.dry_run:
            return replace(planned, services=tuple(self._promised(states)))
        return self._bring(replace(wish, stopped=self._names), part, target, source, states)

    def _refuse_unsaved(self, states: dict[str, bytes]) -> None:
        """What a service holds now is gone once it is given another state: somebody must say how it is saved."""
        for service in self._services:
            if service.name in states and service.restore is not None and service.dump is None:
                raise Refused(
                    f"the state of service '{service.name}' cannot be saved before it is replaced: nothing says how",
                    hint=f"git config envhist.service.{service.name}.dump '<command>', or leave --services out",
                )

    def _bring(
        self,
        wish: RestoreOptions,
        part: RestoreRole,
        target: Snapshot,
        source: Snapshot,
        states: dict[str, bytes],
    ) -> RestoreResult:
        done: list[str] = []
        losses: list[SkippedPath] = []
        with self.capturing.service_dumps(CaptureOptions()) as dumps:
            if dumps.failed:
                name, why = dumps.failed[0]
                raise Refused(
                    f"the state of service '{name}' cannot be saved before it is replaced: {why}",
                    hint="put that right first, or leave --services out",
                )
            with self._stopped(done, losses):
                restored = self.restoring.restore(replace(wish, dumps=dumps), part, lambda _: target)
                for service in self._services:
                    self._feed(service, source, states, done, losses)
        return replace(restored, services=tuple(done), losses=(*restored.losses, *losses))

    @contextmanager
    def _stopped(self, done: list[str], losses: list[SkippedPath]) -> Iterator[None]:
        """All of them stopped; whatever happens, those that were are started."""
        stopped: list[Service] = []
        try:
            for service in self._services:
                self._stop(service, stopped, done)
            yield
        except UnfinishedRestore:
            # No server is started on what is neither of two moments: whoever ends that is told of them.
            stopped.clear()
            raise
        finally:
            # Also after a signal: who was stopped for us shall not stay so.
            for service in stopped:
                self._start(service, done, losses)

    def _stop(self, service: Service, stopped: list[Service], done: list[str]) -> None:
        stopped.append(service)
        if service.stop is None:
            return
        why = run(self._way, service.name, service.stop)
        if why is not None:
            raise Refused(
                f"service '{service.name}' does not stop: {why}; nothing was changed",
                hint="put that right first, or leave --services out",
            )
        done.append(f"{service.name} stopped")

    def _start(self, service: Service, done: list[str], losses: list[SkippedPath]) -> None:
        if service.start is None:
            return
        why = run(self._way, service.name, service.start)
        if why is None:
            done.append(f"{service.name} started")
        else:
            losses.append(_loss(service, f"it does not start: {why}"))

    def _feed(
        self,
        service: Service,
        source: Snapshot,
        states: dict[str, bytes],
        done: list[str],
        losses: list[SkippedPath],
    ) -> None:
        if service.name not in states or service.restore is None:
            if service.dump is not None:
                losses.append(_loss(service, NO_STATE if service.name not in states else NO_COMMAND))
            return
        try:
            with self._state(service.name, states[service.name]) as file:
                why = run(self._way, service.name, service.restore, source=file)
        except (EnvhistError, OSError) as error:
            why = str(error)
        if why is None:
            done.append(f"{service.name} restored from {source.id[:7]}")
        else:
            losses.append(_loss(service, f"its state was not restored: {why}"))

    @contextmanager
    def _state(self, name: str, tree: bytes) -> Iterator[IO[bytes]]:
        """What a command reads: whole and believed before it is started."""
        repository = self.capturing.repository
        with TemporaryFile(dir=state_directory(repository.state)) as file:
            with CatFile(repository.git) as reader:
                file.writelines(read_state(reader, self.find_key, name, tree))
            file.flush()
            file.seek(0)
            yield file

    def _source(self, target: Snapshot, part: RestoreRole) -> Snapshot:
        """The moment whose services are meant by another."""
        if part in (RestoreRole.UNDO, RestoreRole.REDO):
            # What was here when it was left is what taking it back means, not what was here when it was captured.
            alike = [one for one in self.log() if one.content == target.content]
            return next((one for one in alike if self._states(one) and self._is_ours(one)), target)
        by_id = {str(one.id): one for one in self.log()}
        found = target
        while not self._states(found) and found.restored_from is not None:
            before = by_id.get(found.restored_from)
            if before is None or before.content != target.content or not self._is_ours(before):
                break
            found = before
        return found

    def _is_ours(self, snapshot: Snapshot) -> bool:
        return self.restoring.here.judge(snapshot).trusted is not False

    def _states(self, snapshot: Snapshot) -> dict[str, bytes]:
        with CatFile(self.capturing.repository.git) as reader:
            return kept_services(reader, snapshot.tree)

    def _promised(self, states: dict[str, bytes]) -> Iterator[str]:
        for service in self._services:
            steps = [
                word
                for word, there in (
                    ("stop", service.stop),
                    ("restore", service.restore and service.name in states),
                    ("start", service.start),
                )
                if there
            ]
            yield f"{service.name}: {', '.join(steps) or 'nothing to be done'}"

    @property
    def _services(self) -> tuple[Service, ...]:
        return self.capturing.settings.services

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(service.name for service in self._services if service.stop or service.restore)

    @property
    def _way(self) -> ServiceCommandContext:
        repository = self.capturing.repository
        return ServiceCommandContext(repository.root, self.capturing.environ, repository.common_dir)


def _loss(service: Service, why: str) -> SkippedPath:
    return SkippedPath(EnvPath(f"service {service.name}".encode()), why)
