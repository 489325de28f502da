"""Restore services with the environment: stop them, restore the files, restore the state of each, start them.

The present state of all services is saved first, in the safety snapshot; if that fails, nothing is stopped. Everything
that can be refused is refused before. Commands come from git's configuration only; a snapshot contains data for them,
and of an unsigned snapshot not even that is used.
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
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.restore_runner import Choose, RestoreRunner
from git_envhist.service_dumps import FindKey, ServiceCommandContext, read_state, run, stored_services

NO_STATE = "the snapshot has no state of it"
NO_COMMAND = "no restore command is configured: envhist.service.<name>.restore"


@dataclass(frozen=True, slots=True)
class ServiceRestore:
    """Restores of a working tree with its services."""

    capturing: CapturePipeline
    runner: RestoreRunner
    find_key: FindKey
    log: Callable[[], Sequence[Snapshot]]

    def restore(self, options: RestoreOptions, role: RestoreRole, choose: Choose) -> RestoreResult:
        """Restore the snapshot that `choose` returns, with the services."""
        if not self._services:
            raise Refused(
                "no service is configured", hint="git config envhist.service.<name>.dump '<command>'"
            )
        planned = self.runner.restore(replace(options, dry_run=True, planned=None), role, choose)
        target = planned.target
        if target.trusted is False:
            raise Refused(
                f"'{target.id[:7]}' is unsigned: its services cannot be restored",
                hint="restore its files without --services",
            )
        source = self._source(target, role)
        states = self._states(source)
        self._refuse_unsaved(states)
        if options.dry_run:
            return replace(planned, services=tuple(self._planned_steps(states)))
        return self._restore_all(replace(options, stopped=self._names), role, target, source, states)

    def _refuse_unsaved(self, states: dict[str, bytes]) -> None:
        """Refuse to replace the state of a service that has no dump command."""
        for service in self._services:
            if service.name in states and service.restore is not None and service.dump is None:
                raise Refused(
                    f"the state of service '{service.name}' cannot be saved: no dump command is configured",
                    hint=f"git config envhist.service.{service.name}.dump '<command>', or run without --services",
                )

    def _restore_all(
        self,
        options: RestoreOptions,
        role: RestoreRole,
        target: Snapshot,
        source: Snapshot,
        states: dict[str, bytes],
    ) -> RestoreResult:
        done: list[str] = []
        losses: list[SkippedPath] = []
        with self.capturing.service_dumps(CaptureOptions()) as dumps:
            if dumps.failed:
                name, problem = dumps.failed[0]
                raise Refused(
                    f"the state of service '{name}' cannot be saved: {problem}",
                    hint="fix this first, or run without --services",
                )
            with self._stopped(done, losses):
                restored = self.runner.restore(replace(options, dumps=dumps), role, lambda _: target)
                for service in self._services:
                    self._restore_state(service, source, states, done, losses)
        return replace(restored, services=tuple(done), losses=(*restored.losses, *losses))

    @contextmanager
    def _stopped(self, done: list[str], losses: list[SkippedPath]) -> Iterator[None]:
        """Stop all services for the body; start those that were stopped, whatever happens."""
        stopped: list[Service] = []
        try:
            for service in self._services:
                self._stop(service, stopped, done)
            yield
        except UnfinishedRestore:
            # Recovery starts them: no server must run on files between two snapshots.
            stopped.clear()
            raise
        finally:
            # Also after a signal.
            for service in stopped:
                self._start(service, done, losses)

    def _stop(self, service: Service, stopped: list[Service], done: list[str]) -> None:
        stopped.append(service)
        if service.stop is None:
            return
        problem = run(self._command_context, service.name, service.stop)
        if problem is not None:
            raise Refused(
                f"service '{service.name}' did not stop: {problem}; nothing was changed",
                hint="fix this first, or run without --services",
            )
        done.append(f"{service.name} stopped")

    def _start(self, service: Service, done: list[str], losses: list[SkippedPath]) -> None:
        if service.start is None:
            return
        problem = run(self._command_context, service.name, service.start)
        if problem is None:
            done.append(f"{service.name} started")
        else:
            losses.append(_loss(service, f"it did not start: {problem}"))

    def _restore_state(
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
                problem = run(self._command_context, service.name, service.restore, source=file)
        except (EnvhistError, OSError) as error:
            problem = str(error)
        if problem is None:
            done.append(f"{service.name} restored from {source.id[:7]}")
        else:
            losses.append(_loss(service, f"its state was not restored: {problem}"))

    @contextmanager
    def _state(self, name: str, tree: bytes) -> Iterator[IO[bytes]]:
        """Yield the file that a restore command reads; it is complete and verified before the command starts."""
        repository = self.capturing.repository
        with TemporaryFile(dir=state_directory(repository.state)) as file:
            with CatFile(repository.git) as reader:
                file.writelines(read_state(reader, self.find_key, name, tree))
            file.flush()
            file.seek(0)
            yield file

    def _source(self, target: Snapshot, role: RestoreRole) -> Snapshot:
        """Return the snapshot whose stored service states belong to the target."""
        if role in (RestoreRole.UNDO, RestoreRole.REDO):
            # Undo returns to the state at the time the target was left, not at the time of its capture.
            same_content = [one for one in self.log() if one.content == target.content]
            return next((one for one in same_content if self._states(one) and self._is_ours(one)), target)
        by_id = {str(one.id): one for one in self.log()}
        found = target
        while not self._states(found) and found.restored_from is not None:
            before = by_id.get(found.restored_from)
            if before is None or before.content != target.content or not self._is_ours(before):
                break
            found = before
        return found

    def _is_ours(self, snapshot: Snapshot) -> bool:
        return self.runner.context.judge(snapshot).trusted is not False

    def _states(self, snapshot: Snapshot) -> dict[str, bytes]:
        with CatFile(self.capturing.repository.git) as reader:
            return stored_services(reader, snapshot.tree)

    def _planned_steps(self, states: dict[str, bytes]) -> Iterator[str]:
        for service in self._services:
            steps = [
                word
                for word, wanted in (
                    ("stop", service.stop),
                    ("restore", service.restore and service.name in states),
                    ("start", service.start),
                )
                if wanted
            ]
            yield f"{service.name}: {', '.join(steps) or 'nothing to do'}"

    @property
    def _services(self) -> tuple[Service, ...]:
        return self.capturing.settings.services

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(service.name for service in self._services if service.stop or service.restore)

    @property
    def _command_context(self) -> ServiceCommandContext:
        repository = self.capturing.repository
        return ServiceCommandContext(repository.root, self.capturing.environ, repository.common_dir)


def _loss(service: Service, problem: str) -> SkippedPath:
    return SkippedPath(EnvPath(f"service {service.name}".encode()), problem)
