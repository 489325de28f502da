"""Takes a snapshot: from the locks to the line that says it is done."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from git_envhist.capture.tokens import mask_tokens
from git_envhist.capturing.gather import Gathered
from git_envhist.capturing.identity import moment, signature, who_am_i
from git_envhist.capturing.publish import Letter, Published, is_published, publish
from git_envhist.capturing.request import Request
from git_envhist.capturing.reserved import reserved_entries
from git_envhist.capturing.survey import refuse_home, survey
from git_envhist.capturing.take import Taken, Taker, Tools
from git_envhist.capturing.tidying import COMMON_LOCK, tidy
from git_envhist.capturing.timelines import current_timeline, ensure_timeline
from git_envhist.errors import EnvhistError, Refused, SealingError
from git_envhist.history.diff import count
from git_envhist.history.story import describe_counts
from git_envhist.model import Captured, ChangeCount, EnvPath, IntentSource, Record, Snapshot
from git_envhist.settings import Settings
from git_envhist.store.chain import read_chain
from git_envhist.store.compare import compare
from git_envhist.store.gitview import GitView, read_view
from git_envhist.store.keys import Key, KeyRing
from git_envhist.store.locks import locked, state_directory
from git_envhist.store.message import Draft
from git_envhist.store.records import name_record
from git_envhist.store.repository import HEADS, Repository
from git_envhist.store.snapshots import whole_tree
from git_envhist.store.staging import Staging, sweep


@dataclass(slots=True)
class Capturing:
    """One working tree, and how it is captured."""

    repository: Repository
    settings: Settings
    keys: KeyRing
    how: str
    """How workers run: fork, spawn, here."""
    environ: dict[str, str]

    def capture(self, request: Request) -> Captured:
        """Take a snapshot, as it was asked for."""
        captured = self._capture(request)
        if captured.snapshot is not None:
            tidy(self.repository)
        return captured

    def _capture(self, request: Request) -> Captured:
        if not request.force:
            refuse_home(self.repository.root, self.environ)
        started = time.monotonic()
        with self._locked(request):
            warnings = [*self.settings.warnings, *self._sweep()]
            key, warned = self._key()
            with self._staging() as staging, closing(self._taker(staging, key)) as taking:
                if request.dry_run:
                    return _dry(taking.look(request.progress), started)
                view = self._view()
                taken = taking.take(request.progress)
                warnings += [*warned, *view.warnings, *taken.warnings]
                self._refuse_partial(request, taken.gathered)
                if request.if_changed and self._is_as_before(taken):
                    taking.remember_unpublished(taken)
                    return _nothing(taken, warnings, started)
                return self._publish(request, staging, taking, taken, view, key, warnings, started)

    @contextmanager
    def _locked(self, request: Request) -> Iterator[None]:
        own = os.path.join(state_directory(self.repository.state), "lock")
        common = os.path.join(state_directory(self.repository.common_state), COMMON_LOCK)
        with locked(own, waiting=request.waiting), locked(common, shared=True, waiting=request.waiting):
            yield

    def _sweep(self) -> list[str]:
        repository = self.repository
        try:
            sweep(
                repository.common_state,
                repository.pack_dir,
                lambda commit: is_published(repository.git, commit),
            )
        except EnvhistError as error:
            return [f"what a killed capture left could not be cleared: {error}"]
        return []

    def _key(self) -> tuple[Key | None, list[str]]:
        try:
            key = self.keys.current()
        except SealingError as error:
            return None, [f"secret files are left out: {error}"]
        return key, list(self.keys.warnings)

    def _staging(self) -> Staging:
        return Staging.create(self.repository.common_state, self.repository.pack_dir)

    def _taker(self, staging: Staging, key: Key | None) -> Taker:
        extent = survey(self.repository, self.settings, key.id if key else None, self.keys.backup.directory)
        timeline = current_timeline(self.repository, self.settings)
        tip = self.repository.resolve_ref(HEADS + timeline) if timeline else None
        return Taker(Tools(self.repository, self.settings, self.how), extent, staging, key, tip)

    def _view(self) -> GitView:
        repository = self.repository
        return read_view(repository.git, repository.root, repository.git_dir, repository.object_format)

    def _refuse_partial(self, request: Request, gathered: Gathered) -> None:
        if request.strict and gathered.missing:
            first = gathered.missing[0]
            raise Refused(
                f"{len(gathered.missing)} paths cannot be captured, the first is "
                f"'{os.fsdecode(first.path)}' ({first.why.value})",
                hint="without --strict the rest is captured and these are listed",
            )

    def _is_as_before(self, taken: Taken) -> bool:
        before = self._snapshot(taken.tip) if taken.tip else None
        return before is not None and before.content == taken.assembled.content

    def _snapshot(self, commit: str) -> Snapshot | None:
        return next(iter(read_chain(self.repository.git, commit, limit=1, notes=False)), None)

    def _publish(
        self,
        request: Request,
        staging: Staging,
        taking: Taker,
        taken: Taken,
        view: GitView,
        key: Key | None,
        warnings: list[str],
        started: float,
    ) -> Captured:
        timeline = ensure_timeline(self.repository, self.settings)
        at = moment(self.repository.git, self.environ)
        reserved, sealed_names = reserved_entries(taking, taken, view, request.attach, key, warnings)
        tree = whole_tree(taking.writer, taken.assembled.top, taken.assembled.manifest, reserved).hex()
        packs = taking.finish(taken)
        git = self.repository.git.with_objects(staging.path)
        first_draft = self._draft(request, timeline, view, taken, key, sealed_names)

        def describe(parent: str | None) -> Draft:
            if parent is None:
                changed = taken.first_count()
                return replace(first_draft, changed=changed, story=describe_counts(changed, first=True))
            try:
                changed = count(compare(git, parent, tree))
            except EnvhistError as error:
                # The snapshot before is damaged; this one is not, and is not lost with it.
                warnings.append(f"what changed could not be told: {error}")
                return first_draft
            return replace(first_draft, changed=changed, story=describe_counts(changed))

        letter = Letter(
            tree, signature(first_draft.actor, at), describe, _records(request, first_draft, at), key, at
        )
        done = publish(self.repository, staging, timeline, packs, letter)
        taking.remember(taken, done.commit)
        return self._captured(done, taken, [*warnings, *done.warnings], started)

    def _draft(
        self,
        request: Request,
        timeline: str,
        view: GitView,
        taken: Taken,
        key: Key | None,
        names: tuple[str, ...],
    ) -> Draft:
        intent, source = _intent(request, view)
        mask = _mask_text
        return Draft(
            mask_tokens(intent),
            source,
            timeline,
            request.trigger,
            request.actor or who_am_i(self.settings, self.environ),
            head=view.head,
            branch=view.branch,
            missing_count=len(taken.gathered.missing),
            content=taken.assembled.content,
            changed=ChangeCount(),
            external_id=mask(request.external_id) if request.external_id else None,
            meta=tuple((mask(key_), mask(value)) for key_, value in request.meta),
            attachments=names,
            key=key.id if key else None,
        )

    def _captured(self, done: Published, taken: Taken, warnings: list[str], started: float) -> Captured:
        snapshot = self._snapshot(done.commit)
        return Captured(
            snapshot,
            files=taken.files,
            new_files=taken.gathered.files,
            new_bytes=taken.gathered.bytes,
            stored_bytes=done.stored_bytes,
            seconds=time.monotonic() - started,
            missing=tuple(taken.gathered.missing),
            warnings=tuple(warnings),
            directories=taken.largest() if done.parent is None else (),
            first=done.parent is None,
            sealed_first=taken.seals_now() and self.keys.first_use(),
        )

    @contextmanager
    def present(self) -> Iterator[tuple[str, str]]:
        """The live environment as a tree in a staging that goes away afterwards: (objects directory, tree)."""
        common = os.path.join(state_directory(self.repository.common_state), COMMON_LOCK)
        with ExitStack() as stack:
            # No pack that this relies on may be merged away under it.
            stack.enter_context(locked(common, shared=True))
            key, _ = self._key()
            staging = stack.enter_context(self._staging())
            taking = stack.enter_context(closing(self._taker(staging, key)))
            taken = taking.take(None)
            reserved, _ = reserved_entries(taking, taken, self._view(), (), key, [])
            tree = whole_tree(taking.writer, taken.assembled.top, taken.assembled.manifest, reserved).hex()
            taking.finish(taken)
            yield staging.path, tree


def _intent(request: Request, view: GitView) -> tuple[bytes, IntentSource]:
    if request.intent is not None and request.intent.strip():
        return request.intent, request.intent_source or IntentSource.GIVEN
    if view.subject:
        return view.subject, IntentSource.COMMIT
    return b"", IntentSource.NONE


def _records(request: Request, draft: Draft, at: datetime) -> tuple[Record, ...]:
    text = draft.intent.decode("utf-8", "replace")
    fields: dict[str, object] = {"text": text, "source": draft.intent_source.value}
    records = [Record("intent", at, fields)]
    if request.name is not None:
        records.append(name_record(request.name, at))
    return tuple(records)


def _mask_text(text: str) -> str:
    return os.fsdecode(mask_tokens(os.fsencode(text)))


def _dry(gathered: Gathered, started: float) -> Captured:
    return Captured(
        None,
        files=gathered.files,
        new_files=gathered.files,
        new_bytes=gathered.bytes,
        stored_bytes=0,
        seconds=time.monotonic() - started,
        missing=tuple(gathered.missing),
        directories=_by_directory(gathered),
    )


def _by_directory(gathered: Gathered) -> tuple[tuple[EnvPath, int, int], ...]:
    rows = [(EnvPath(path), files, size) for path, files, size in gathered.listing if files]
    return tuple(sorted(rows, key=lambda row: (-row[2], row[0])))


def _nothing(taken: Taken, warnings: list[str], started: float) -> Captured:
    seconds = time.monotonic() - started
    return Captured(None, taken.files, 0, 0, 0, seconds, warnings=tuple(warnings))
