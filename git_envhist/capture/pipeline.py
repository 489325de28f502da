"""Run one capture: options, locks, checks before it, scan, publication.

`CapturePipeline.capture` is the only entry point of a capture. Services are dumped first, without a lock.
Then the lock of the working tree is taken: a second capture or a restore of the same tree waits for it, while
captures of other working trees of the repository run in parallel and share a lock that keeps packs from being
removed. An interrupted restore is refused and leftovers of killed captures are removed. `capture_tree` yields
the captured tree in its staging directory; a restore uses it, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, TypedDict

from git_envhist import printable_text
from git_envhist.capture.capture_worker import KnownWrites
from git_envhist.capture.environment_trees import CaptureTools, TreeCapture
from git_envhist.capture.parallel_scan import ScanResult
from git_envhist.capture.scope import CaptureScope, bases_of, read_scope
from git_envhist.config import Settings
from git_envhist.discovery import history_directories, refuse_home
from git_envhist.disk import CannotWrite, state_directory
from git_envhist.errors import Damaged, EnvhistError, Refused, SealingError, UnfinishedRestore, in_words
from git_envhist.git.repository import TIMELINE_REFS, Repository
from git_envhist.history.catalog import as_sequence, refuse_unknown
from git_envhist.lazy import dataclass, replace
from git_envhist.locks import COMMON_LOCK, locked
from git_envhist.model import (
    Actor,
    CaptureProgress,
    CaptureResult,
    EnvPath,
    IntentSource,
    RestoreRole,
    Snapshot,
    Trigger,
)
from git_envhist.model.checks import CheckListener
from git_envhist.platform import read_or_stop, worker_mode
from git_envhist.secrets.keys import Key, KeyRing
from git_envhist.service_dumps import NONE
from git_envhist.snapshots.log import read_chain, read_snapshot
from git_envhist.snapshots.staging import Staging, sweep
from git_envhist.trace import trace_step
from git_envhist.watcher.client import begin_asking
from git_envhist.worktree.sealed_copies import sweep_sources
from git_envhist.worktree.timeline_name import current_timeline
from git_envhist.worktree.unfinished_restore import has_unfinished_restore, restore_directory

if TYPE_CHECKING:
    from git_envhist.capture.captured_tree import CapturedTree
    from git_envhist.git.status import GitStatus
    from git_envhist.service_dumps import Dumps


# Options of a capture.


def ignore_progress(_captured: CaptureResult) -> None:
    """Ignore the result: the default of `CaptureOptions.captured`."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """Options of one capture."""

    intent: bytes | None = None
    intent_source: IntentSource | None = None
    name: str | None = None
    if_changed: bool = False
    strict: bool = False
    meta: tuple[tuple[str, str], ...] = ()
    external_id: str | None = None
    attach: tuple[tuple[str, bytes], ...] = ()
    trigger: Trigger = Trigger.MANUAL
    actor: Actor | None = None
    dry_run: bool = False
    force: bool = False
    restore: RestoreRole | None = None
    restored_from: str | None = None
    forked_from: str | None = None
    merged: str | None = None
    applied: tuple[tuple[str, str], ...] = ()
    progress: Callable[[CaptureProgress], None] | None = None
    waiting: Callable[[], None] | None = None
    captured: Callable[[CaptureResult], None] = ignore_progress
    """Called with the result before any check runs."""
    dumps: Dumps = NONE
    """States of services, dumped before any lock is taken."""


class CaptureKeywords(TypedDict, total=False):
    """Keyword arguments of `EnvHistory.capture`."""

    name: str | None
    if_changed: bool
    strict: bool
    meta: Mapping[str, str] | Sequence[tuple[str, str]]
    external_id: str | None
    attach: Sequence[str | os.PathLike[str]]
    attached: Sequence[tuple[str, bytes]]
    """Attachments as (name, bytes), stored without reading a file."""
    conversation: Sequence[object] | None
    """JSON values stored with the snapshot and returned by `EnvHistory.get`."""
    tool_outputs: Sequence[object] | None
    trigger: Trigger
    actor: Actor | None
    """The author; by default the user of this machine."""
    intent_source: IntentSource | None
    dry_run: bool
    force: bool
    progress: Callable[[CaptureProgress], None] | None
    waiting: Callable[[], None] | None
    captured: Callable[[CaptureResult], None]
    verify: str | None
    """Command that checks the environment after the capture."""
    watching: CheckListener
    """Receives the output and progress of that command."""


def capture_options(intent: bytes | str | None, asked: CaptureKeywords) -> CaptureOptions:
    """Return the options for these keywords; the trigger is `API` unless one is given."""
    refuse_unknown("capture", asked, CaptureKeywords.__annotations__)
    whole: CaptureKeywords = {"trigger": Trigger.API, **asked}
    external_id = whole.get("external_id")
    return CaptureOptions(
        printable_text.encode_text(intent) if isinstance(intent, str) else intent,
        name=whole.get("name"),
        if_changed=whole.get("if_changed", False),
        strict=whole.get("strict", False),
        meta=pairs(whole.get("meta", ())),
        external_id=None if external_id is None else printable_text.replace_surrogates(external_id),
        intent_source=whole.get("intent_source"),
        attach=(
            *map(read_attachment, map(os.fspath, as_sequence(whole.get("attach", ())))),
            *whole.get("attached", ()),
        ),
        actor=whole.get("actor"),
        trigger=whole["trigger"],
        dry_run=whole.get("dry_run", False),
        force=whole.get("force", False),
        progress=whole.get("progress"),
        waiting=whole.get("waiting"),
        captured=whole.get("captured", ignore_progress),
    )


def pairs(meta: Mapping[str, str] | Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return metadata as a tuple of (key, value)."""
    given = meta.items() if isinstance(meta, Mapping) else meta
    return tuple(
        (printable_text.replace_surrogates(key), printable_text.replace_surrogates(value))
        for key, value in given
    )


def read_attachment(path: str) -> tuple[str, bytes]:
    """Return the name and the bytes of a file or pipe to attach to a snapshot."""
    try:
        return os.path.basename(path), read_or_stop(path)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise EnvhistError(f"cannot attach '{path}': {reason}", hint=_attachment_hint(error)) from error


def _attachment_hint(error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "attach a file; to attach a directory, pack it first: tar -cf <file> <directory>"
    return "name a file that exists and that you may read"


@dataclass(slots=True)
class CapturePipeline:
    """Capture one working tree."""

    repository: Repository
    settings: Settings
    keys: KeyRing
    how: str
    """Mode of workers: "fork", "spawn" or "here" (in this process)."""
    environ: dict[str, str]
    tidy: Callable[[Repository], None]
    """Called after a snapshot was published and the locks were released."""
    sweep_restore: Callable[[str, Mapping[bytes, bytes]], None]
    """Deletes what a killed restore left in its directory and below the roots; called under the locks."""

    def capture(self, request: CaptureOptions) -> CaptureResult:
        """Capture the working tree and return the result."""
        with self.service_dumps(request) as dumps:
            captured = self._capture(replace(request, dumps=dumps))
        if captured.snapshot is not None:
            self.tidy(self.repository)
        if self.settings.watcher and not request.dry_run:
            self._start_watcher()
        return captured

    def _start_watcher(self) -> None:
        from git_envhist.watcher.start import (
            start_if_missing,
        )  # loaded late: few working trees have a watcher

        # Without a watcher a capture only takes longer.
        with suppress(OSError, EnvhistError):
            start_if_missing(self.repository)

    @contextmanager
    def service_dumps(self, request: CaptureOptions) -> Iterator[Dumps]:
        """Dump the configured services. Call this without holding a lock: a dump may take minutes."""
        if not self.settings.services or request.dry_run:
            yield NONE
            return
        from git_envhist.service_dumps import (  # loaded late: few captures have services
            DUMP_TIMEOUT,
            ServiceCommandContext,
            dump_services,
        )

        command_context = ServiceCommandContext(
            self.repository.root, self.environ, self.repository.common_dir, DUMP_TIMEOUT
        )
        with dump_services(
            self.settings.services, command_context, self.settings, self.repository.state
        ) as dumps:
            yield dumps

    def _capture(self, request: CaptureOptions) -> CaptureResult:
        # A command that creates a history in a home directory asks the user before it gets here.
        if not request.force and not self.repository.plain:
            refuse_home(self.repository.root, self.environ)
        with self.locked(request):
            self.refuse_unfinished_restore()
            self.sweep_staged()
            swept = [*self.settings.warnings, *self._sweep()]
            if request.dry_run:
                return self._dry(request)
            with self.capture_tree(request) as captured_tree:
                captured_tree.warnings[:0] = swept
                self._refuse_partial(request, captured_tree.environment.scan_result)
                if request.if_changed and self._is_unchanged(captured_tree):
                    return captured_tree.finish_unpublished()
                return captured_tree.publish(request)

    def _dry(self, request: CaptureOptions) -> CaptureResult:
        started = time.monotonic()
        key, _ = self._key()
        with self._staging(reading=True) as staging, closing(self._new_capture(staging, key)) as capture:
            return _dry(capture.scan(request.progress), started)

    @contextmanager
    def locked(self, request: CaptureOptions) -> Iterator[None]:
        """Hold the lock of the working tree, and a shared lock that keeps packs from being removed."""
        self.repository.require_tree()
        own = self._lock(self.repository.state, "lock", request.dry_run)
        common = self._lock(self.repository.common_state, COMMON_LOCK, request.dry_run)
        with (
            locked(own, waiting=request.waiting, reading=request.dry_run),
            locked(common, shared=True, reading=request.dry_run),
        ):
            yield

    def _lock(self, state: str, name: str, reading: bool) -> str:
        # A dry run must also work in a repository that it cannot write to.
        with suppress(*((CannotWrite,) if reading else ())):
            state_directory(state)
        return os.path.join(state, name)

    def refuse_unfinished_restore(self) -> None:
        """Raise `UnfinishedRestore` if a restore was interrupted: its files are a mix of two snapshots."""
        if has_unfinished_restore(self.repository.state):
            raise UnfinishedRestore

    def sweep_staged(self) -> None:
        """Delete files staged by a restore that was killed before it started."""
        bases, _ = bases_of(self.repository, self.settings)
        # A leftover only uses disk space, so an error here must not fail the capture.
        with suppress(OSError, EnvhistError):
            self.sweep_restore(restore_directory(self.repository.state), bases)

    @trace_step("remove leftovers of killed captures")
    def _sweep(self) -> list[str]:
        repository = self.repository
        sweep_sources(repository.state)
        try:
            sweep(
                repository.common_state,
                repository.pack_dir,
                lambda commit: _is_published(repository, commit),
            )
        except EnvhistError as error:
            return [f"cannot remove what a killed capture left: {in_words(error)}"]
        return []

    def _key(self) -> tuple[Key | None, list[str]]:
        try:
            key = self.keys.current()
        except SealingError as error:
            return None, [f"secret files are not captured: {in_words(error)}"]
        return key, list(self.keys.warnings)

    @contextmanager
    def _staging(self, *, reading: bool = False) -> Iterator[Staging]:
        """Yield a staging directory; with `reading`, a temporary one if the repository is not writable."""
        try:
            staging = Staging.create(
                self.repository.common_state, self.repository.pack_dir, self.repository.shared
            )
        except CannotWrite:
            if not reading:
                raise
            from tempfile import TemporaryDirectory  # loaded late: few repositories are read-only

            with (
                TemporaryDirectory(prefix="git-envhist-") as place,
                Staging.create(place, os.path.join(place, "pack")) as elsewhere,
            ):
                yield elsewhere
            return
        with staging:
            yield staging

    def _new_capture(self, staging: Staging, key: Key | None, question: str = "") -> TreeCapture:
        extent = self.read_scope(key.id if key else None)
        timeline = current_timeline(self.repository, self.settings)
        tip = self.repository.resolve_ref(TIMELINE_REFS + timeline) if timeline else None
        tools = CaptureTools(self.repository, self.settings, worker_mode(self.how))
        return TreeCapture(tools, extent, staging, key, tip, question)

    @trace_step("determine the scope")
    def read_scope(self, key_id: str | None) -> CaptureScope:
        """Return the scope of the environment: roots, mounts and patterns."""
        self.repository.require_tree()
        keys = self.keys.backup.directory
        return read_scope(self.repository, self.settings, key_id, keys, history_directories(self.environ))

    @trace_step("read git's status")
    def _view(self, capture: TreeCapture) -> GitStatus:
        from git_envhist.git.status import GitStatus, read_git_status  # loaded late: while the workers scan

        repository = self.repository
        if repository.plain:
            return GitStatus()
        return read_git_status(
            repository.git,
            repository.root,
            repository.git_dir,
            repository.object_format,
            closed=capture.scope.mount_points,
        )

    def _refuse_partial(self, request: CaptureOptions, scan_result: ScanResult) -> None:
        if request.strict and scan_result.missing:
            first = scan_result.missing[0]
            raise Refused(
                f"{len(scan_result.missing)} paths cannot be captured, the first is "
                f"'{os.fsdecode(first.path)}' ({first.why.value})",
                hint="without --strict the other paths are captured and these are listed",
            )

    def _is_unchanged(self, captured_tree: CapturedTree) -> bool:
        tip = captured_tree.environment.tip
        before = self._snapshot(captured_tree.capture, tip) if tip else None
        return (
            before is not None
            and before.content == captured_tree.content
            and captured_tree.has_packages_of(before)
        )

    def _snapshot(self, capture: TreeCapture, commit: str) -> Snapshot | None:
        try:
            return read_snapshot(commit, capture.known.read(bytes.fromhex(commit))[1])
        except (KeyError, Damaged):
            return next(iter(read_chain(self.repository.git, commit, limit=1, notes=False)), None)

    @contextmanager
    def current_tree(self) -> Iterator[CapturedTree]:
        """Capture the working tree into a staging directory that is deleted afterwards."""
        common = self._lock(self.repository.common_state, COMMON_LOCK, True)
        # The shared lock keeps packs in place while the tree is read.
        with (
            locked(common, shared=True, reading=True),
            self.capture_tree(CaptureOptions(dry_run=True)) as captured_tree,
        ):
            yield captured_tree

    @contextmanager
    def capture_tree(
        self,
        request: CaptureOptions,
        since: KnownWrites | None = None,
        meanwhile: Callable[[str | None], None] = lambda tip: None,
    ) -> Iterator[CapturedTree]:
        """Capture the working tree into a staging directory; the caller holds the locks.

        The result becomes a snapshot only if its `publish` is called. `since` is an earlier capture under the
        same locks together with the directories changed after it; only those are scanned. `meanwhile` is
        called with the newest snapshot while the workers scan.
        """
        started = time.monotonic()
        question = begin_asking(self.repository.state)
        key, warnings = self._key()
        with (
            self._staging(reading=request.dry_run) as staging,
            closing(self._new_capture(staging, key, question)) as capture,
        ):
            capture.begin(request.progress, since)
            from git_envhist.capture.captured_tree import (  # loaded late: while the workers scan
                CaptureContext,
                CapturedTree,
            )
            from git_envhist.capture.probe_runner import start_probes  # loaded late: while the workers scan

            with closing(start_probes(capture, key, self.how, self.environ)) as facts:
                meanwhile(capture.tip)
                view = self._view(capture)
                environment = capture.capture(request.progress)
                warnings += [*view.warnings, *environment.warnings]
                context = CaptureContext(self.repository, self.settings, self.keys, self.environ)
                yield CapturedTree(
                    context=context,
                    staging=staging,
                    capture=capture,
                    environment=environment,
                    view=view,
                    key=key,
                    warnings=warnings,
                    started=started,
                    facts=facts,
                    dumps=request.dumps,
                )


def _is_published(repository: Repository, commit: str) -> bool:
    from git_envhist.snapshots.publish import (
        is_published,  # loaded late: only leftovers of a killed capture need it
    )

    return is_published(repository.git, commit)


def _dry(scan_result: ScanResult, started: float) -> CaptureResult:
    return CaptureResult(
        None,
        files=scan_result.files,
        new_files=scan_result.files,
        new_bytes=scan_result.bytes,
        stored_bytes=0,
        seconds=time.monotonic() - started,
        missing=tuple(scan_result.missing),
        directories=_by_directory(scan_result),
    )


def _by_directory(scan_result: ScanResult) -> tuple[tuple[EnvPath, int, int], ...]:
    rows = [(EnvPath(path), files, size) for path, files, size in scan_result.listing if files]
    return tuple(sorted(rows, key=lambda row: (-row[2], row[0])))
