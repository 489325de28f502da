"""The environment as it was taken: its trees stand in a staging, and become a snapshot when they are published."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from git_envhist.capturing.factdiff import brief_facts, fact_ids
from git_envhist.capturing.facts import NAMES_IN_THE_CLEAR, ProbeRunner
from git_envhist.capturing.identity import current_actor, current_time, signature
from git_envhist.capturing.publish import CommitDraft, PublishedSnapshot, publish
from git_envhist.capturing.request import CaptureOptions
from git_envhist.capturing.reserved import Entries, reserved_entries
from git_envhist.capturing.take import TreeCapture
from git_envhist.capturing.taken import CapturedEnvironment
from git_envhist.capturing.timelines import ensure_timeline
from git_envhist.errors import EnvhistError, in_words
from git_envhist.facts import kinds
from git_envhist.history.diff import count
from git_envhist.history.story import describe_counts
from git_envhist.history.summary import summarize
from git_envhist.model import (
    CaptureResult,
    ChangeCount,
    FactChange,
    IntentSource,
    KeptService,
    NoteRecord,
    Snapshot,
    SnapshotId,
    Trigger,
)
from git_envhist.services.states import NONE, Dumps
from git_envhist.settings import Settings
from git_envhist.store.chain import read_snapshot
from git_envhist.store.compare import compare
from git_envhist.store.git import Git
from git_envhist.store.gitview import GitStatus
from git_envhist.store.keys import Key, KeyRing
from git_envhist.store.message import MessageFields
from git_envhist.store.objects import CatFile
from git_envhist.store.packs import StagedPack
from git_envhist.store.records import name_record
from git_envhist.store.repository import Repository
from git_envhist.store.signatures import signed
from git_envhist.store.snapshots import whole_tree
from git_envhist.store.staging import Staging
from git_envhist.trace import step
from git_envhist.values import dataclass, replace
from git_envhist.verifying.carried import FACTS, carried_record, circumstances, service_states

NAMES = "names-in-the-clear"
"""Exists while a person is still to be warned of them."""


class CaptureContext(NamedTuple):
    """Whose environment it is."""

    repository: Repository
    settings: Settings
    keys: KeyRing
    environ: Mapping[str, str]


class FinishedTree(NamedTuple):
    """What was taken, as one tree."""

    tree: str
    packs: list[StagedPack]
    attachments: tuple[str, ...]
    facts: str
    """What a verdict depends on beside the content."""
    services: str
    """The states of services, as one word."""


@dataclass(slots=True)
class CapturedTree:
    """What was taken, and all that a snapshot of it needs."""

    context: CaptureContext
    staging: Staging
    taking: TreeCapture
    taken: CapturedEnvironment
    view: GitStatus
    key: Key | None
    warnings: list[str]
    started: float
    facts: ProbeRunner
    dumps: Dumps = NONE
    _finished: FinishedTree | None = None

    @property
    def content(self) -> str:
        """What `Env-Content` is of it."""
        return self.taken.assembled.content

    def told_as(self, moment: Snapshot) -> None:
        """Take over what a moment of ours says of the files, where they are the very same."""
        # What is told of sealed files is told by fingerprints under a key.
        if (
            moment.trusted
            and moment.content == self.content
            and moment.key == (self.key.id if self.key else None)
        ):
            self.facts.like = moment.tree

    @step("trees, manifests and facts are made")
    def finish(self, attach: tuple[tuple[str, bytes], ...] = ()) -> FinishedTree:
        """Complete its tree and packs; the first call says what is attached."""
        if self._finished is None:
            sink, assembled = self.taking.writer, self.taken.assembled
            reserved, names = reserved_entries(
                self.taking, self.taken, self.view, attach, self.key, self.warnings
            )
            if self.dumps is not NONE:
                reserved.update(self._keep_dumps())
            taken, told = self.taken, self.facts
            told.take(taken.gathered, taken.merged, taken.records, cached=taken.base is not None)
            if self.dumps is not NONE:
                told.take_dumps(self.dumps)
            self.warnings += told.warnings
            reserved.update(told.entries())
            tree = whole_tree(sink, assembled.top, assembled.manifest, reserved).hex()
            facts = [
                (path.removeprefix(FACTS), oid.hex())
                for path, (_, _, oid) in reserved.items()
                if path.startswith(FACTS)
            ]
            packs = self.taking.finish(self.taken)
            self._finished = FinishedTree(tree, packs, names, circumstances(facts), service_states(facts))
        return self._finished

    def _keep_dumps(self) -> Entries:
        from git_envhist.services.keeping import keep_dumps  # loaded late: hardly any capture has one

        return keep_dumps(self.taking.writer, self.dumps, self.key, self.warnings)

    def has_packages_of(self, before: Snapshot) -> bool:
        """Whether the machine has the packages that it had at a moment, as far as that says."""
        told = self.facts.package_texts()
        if before.commit == self.taken.base:
            then = {name: kept.oid for name, kept in self.taken.facts.items()}
        else:
            with CatFile(self.context.repository.git) as reader:
                then = fact_ids(reader, before.commit)
        return all(then.get(name, oid) == oid for name, oid in told.items())

    def leave(self) -> CaptureResult:
        """Publish nothing; what was seen is remembered all the same."""
        self.taking.remember_unpublished(self.taken)
        seconds = time.monotonic() - self.started
        return CaptureResult(None, self.taken.files, 0, 0, 0, seconds, warnings=tuple(self.warnings))

    @step("the snapshot is published")
    def publish(self, request: CaptureOptions) -> CaptureResult:
        """Make it a snapshot, as it was asked for."""
        repository = self.context.repository
        timeline = ensure_timeline(repository, self.context.settings, self.warnings.append)
        at = current_time(repository.git, self.context.environ)
        finished = self.finish(request.attach)
        draft = self._draft(request, timeline, finished.attachments)
        letter = CommitDraft(
            finished.tree,
            signature(draft.actor, at),
            lambda parent: self._describe(draft, parent, finished.tree),
            lambda commit: (*_records(request, draft, at), *self._known_verdict(commit, finished)),
            self.key,
            at,
        )
        done = publish(repository, self.staging, timeline, finished.packs, letter, self.taking.known)
        self._warn_of_names(request.trigger)
        self.taken.facts = self.facts.kept
        self.taking.remember(self.taken, done.commit)
        return self._captured(done)

    def _warn_of_names(self, trigger: Trigger) -> None:
        """Keep the warning of names in the clear for a capture whose warnings a person reads."""
        kept = os.path.join(self.context.repository.common_state, NAMES)
        with suppress(OSError):
            if NAMES_IN_THE_CLEAR in self.warnings and trigger is not Trigger.MANUAL:
                os.close(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            elif trigger is Trigger.MANUAL and os.path.exists(kept):
                os.unlink(kept)
                self.warnings.append(NAMES_IN_THE_CLEAR)

    def _known_verdict(self, commit: str, finished: FinishedTree) -> tuple[NoteRecord, ...]:
        """The verdict on an environment that is just as this one."""
        state = self.context.repository.common_state
        note = carried_record(state, self.content, finished.facts, finished.services)
        # Nobody would believe one that is not signed.
        return () if note is None or self.key is None else (signed(note, SnapshotId(commit), self.key),)

    def _draft(self, request: CaptureOptions, timeline: str, attachments: tuple[str, ...]) -> MessageFields:
        from git_envhist.capture.masking import (
            mask_pair,
            mask_secrets,
        )  # loaded late: an unchanged capture says nothing
        from git_envhist.capture.masking import mask_text as mask  # loaded late: likewise

        intent, source = _intent(request, self.view)
        return MessageFields(
            mask_secrets(intent),
            source,
            timeline,
            request.trigger,
            request.actor or current_actor(self.context.settings, self.context.environ),
            head=self.view.head,
            branch=self.view.branch,
            missing_count=len(self.taken.gathered.missing),
            content=self.content,
            changed=ChangeCount(),
            external_id=mask(request.external_id) if request.external_id else None,
            meta=tuple(mask_pair(key, value) for key, value in request.meta),
            attachments=attachments,
            restored_from=request.restored_from,
            forked_from=request.forked_from,
            restore=request.restore,
            key=self.key.id if self.key else None,
        )

    def _describe(self, draft: MessageFields, parent: str | None, tree: str) -> MessageFields:
        if parent is None:
            changed = self.taken.first_count()
            # What the capture itself says: an empty directory is a change, and no file.
            told = describe_counts(ChangeCount(added=self.taken.files), first=True)
            return replace(draft, changed=changed, story=told)
        git = self.context.repository.git.with_objects(self.staging.path)
        try:
            known = self.taken.changed if parent == self.taken.base else None
            changed = count(compare(git, parent, tree, brief=True)) if known is None else known
            facts = self._changed_facts(git, parent, tree)
        except EnvhistError as error:
            # The snapshot before is damaged; this one is not, and is not lost with it.
            self.warnings.append(f"what changed could not be told: {in_words(error)}")
            return draft
        return replace(draft, changed=changed, story=summarize(facts, changed, kinds(), names=False))

    def _changed_facts(self, git: Git, parent: str, tree: str) -> tuple[FactChange, ...]:
        """What the facts of this moment and of the one before differ in."""
        if parent == self.taken.base and self.taken.facts == self.facts.kept:
            return ()
        with CatFile(git) as reader:
            return brief_facts(reader, parent, tree, self.context.keys.get)

    def _captured(self, done: PublishedSnapshot) -> CaptureResult:
        taken = self.taken
        snapshot = read_snapshot(done.commit, done.data)
        new_files, new_bytes = taken.merged.fresh()
        if taken.base is None and done.parent is not None:
            # The records were lost: all was read again, and the two trees alone tell what of it is new.
            told = snapshot.changed.added + snapshot.changed.modified
            new_files, new_bytes = min(new_files, told), new_bytes if told >= new_files else 0
        return CaptureResult(
            snapshot,
            files=taken.files,
            new_files=new_files,
            new_bytes=new_bytes,
            stored_bytes=done.stored_bytes,
            seconds=time.monotonic() - self.started,
            missing=tuple(taken.gathered.missing),
            warnings=(*self.warnings, *done.warnings),
            directories=taken.largest() if done.parent is None else (),
            first=done.parent is None,
            services=self._kept_services(),
            sealed_first=taken.seals_now() and self.context.keys.first_use(),
        )

    def _kept_services(self) -> tuple[KeptService, ...]:
        """The states of services that the snapshot holds."""
        taken = self.dumps.taken if self.key is not None else ()
        return tuple(
            KeptService(dump.name, os.fstat(dump.file.fileno()).st_size, dump.told.summary) for dump in taken
        )


def _intent(request: CaptureOptions, view: GitStatus) -> tuple[bytes, IntentSource]:
    if request.intent is not None and request.intent.strip():
        return request.intent, request.intent_source or IntentSource.GIVEN
    if view.subject:
        from git_envhist.history.intents import substitute_intent  # loaded late: most captures have an intent

        return substitute_intent(view.head or "", view.subject), IntentSource.COMMIT
    return b"", IntentSource.NONE


def _records(request: CaptureOptions, draft: MessageFields, at: datetime) -> tuple[NoteRecord, ...]:
    text = draft.intent.decode("utf-8", "replace")
    fields: dict[str, object] = {"text": text, "source": draft.intent_source.value}
    records = [NoteRecord("intent", at, fields)]
    if request.name is not None:
        records.append(name_record(request.name, at))
    return tuple(records)
