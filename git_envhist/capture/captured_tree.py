"""The captured working tree in its staging directory, and its publication as a snapshot.

`CapturedTree` adds to the trees of `environment_trees` everything that is stored below the reserved name: facts,
the staged index, lists of missing paths, attachments and dumps. It then writes the commit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from git_envhist.capture.capture_worker import secret_rules
from git_envhist.capture.environment_trees import CapturedEnvironment, TreeCapture
from git_envhist.capture.pipeline import CaptureOptions
from git_envhist.capture.probe_runner import NAMES_IN_THE_CLEAR, ProbeRunner
from git_envhist.capture.sealed_originals import remembered_sealed_sources
from git_envhist.capture.tool_calls import NO_RECORD, CallRecord, ToolCalls, wall_time
from git_envhist.config import Settings
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.facts import fact_ids, facts_for_summary
from git_envhist.diff.summary import count_changes, describe_counts, summarize
from git_envhist.errors import EnvhistError, in_words
from git_envhist.git.cat_file import CatFile, blob_blocks, known_sizes
from git_envhist.git.current_actor import current_actor, current_time, signature
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.git.status import GitStatus, StagedEntry
from git_envhist.lazy import dataclass, replace
from git_envhist.model import (
    CaptureResult,
    ChangeCount,
    EnvPath,
    FactChange,
    IntentSource,
    KeptService,
    MissingReason,
    NoteRecord,
    Snapshot,
    SnapshotId,
    ToolCall,
    Trigger,
)
from git_envhist.objects.object_readers import TreeReader
from git_envhist.objects.pack_writer import PackWriter, StagedPack
from git_envhist.printable_text import display_bytes
from git_envhist.probes import kinds
from git_envhist.secrets.keys import Key, KeyRing
from git_envhist.secrets.seal import keyed_hash, seal
from git_envhist.secrets.tokens import mask_tokens
from git_envhist.service_dumps import NONE, Dumps
from git_envhist.snapshots.chunks import store_chunks
from git_envhist.snapshots.layout import (
    ATTACHMENTS,
    DIRECTORY,
    FILE,
    GIT_CHANGED,
    MISSING,
    RULES,
    STAGED,
    UNSTABLE,
    ObjectSink,
    TreeEntry,
    chunk_entries,
    write_whole_tree,
)
from git_envhist.snapshots.list_texts import write_git_changes, write_missing, write_rules
from git_envhist.snapshots.log import read_snapshot
from git_envhist.snapshots.message import MessageFields, signed, write_message
from git_envhist.snapshots.note_records import name_record
from git_envhist.snapshots.publish import CommitDraft, PublishedSnapshot, publish
from git_envhist.snapshots.quoting import quote_path
from git_envhist.snapshots.staging import Staging
from git_envhist.snapshots.stored_names import stored_name, stored_path
from git_envhist.trace import trace, trace_step
from git_envhist.worktree.path_patterns import path_filter
from git_envhist.worktree.store_content import MAX_SEALED, BudgetExceeded
from git_envhist.worktree.timeline_name import ensure_timeline


@dataclass(frozen=True, slots=True)
class LiveTree:
    """The captured working tree as a git tree, readable while its context is open."""

    git: Git
    tree: str


# The staged index: entries that differ from HEAD, and contents that only the index refers to.


class StagedIndexSaver:
    """Store the staged index within the byte budget."""

    def __init__(
        self,
        git: Git,
        sink: PackWriter,
        settings: Settings,
        key: Key | None,
        free_bytes: int,
        state: str,
        warnings: list[str],
    ) -> None:
        self._git = git
        self._sink = sink
        self._key = key
        self._big = settings.big_file
        self._rules = secret_rules(settings.secret)
        self._twins = remembered_sealed_sources(state, key)
        self._max_bytes = sink.stored_bytes + free_bytes
        self._warnings = warnings

    def keep(
        self, staged: tuple[StagedEntry, ...], left_out: Callable[[bytes], bool]
    ) -> dict[bytes, TreeEntry]:
        """Store the entries and return them by their path below the reserved name."""
        if not staged:
            return {}
        entries: dict[bytes, TreeEntry] = {}
        lines = []
        sizes = known_sizes(self._git, [bytes.fromhex(entry.oid) for entry in staged if entry.mode])
        with CatFile(self._git) as reader:
            for entry in staged:
                size = sizes.get(bytes.fromhex(entry.oid)) if entry.mode else None
                content = self._content(reader, entry, size)
                secret = self._is_secret(entry, content)
                key = self._key if secret else None
                lines.append(_line(entry, key, secret))
                wanted = entry.needs_content and size is not None and not left_out(entry.path)
                if wanted and not (secret and key is None):
                    self._keep_content(entries, entry, key, content)
        entries[STAGED + b"/index"] = (b"", FILE, self._sink.add(b"blob", b"".join(sorted(lines))))
        return entries

    def _content(self, reader: CatFile, entry: StagedEntry, size: int | None) -> bytes | None:
        """Return the content if it exists and is small enough to read into memory."""
        most = MAX_SEALED if self._rules.by_name(entry.path) else self._big
        found = reader.read(entry.oid) if size is not None and size < most else None
        return found.data if found is not None else None

    def _is_secret(self, entry: StagedEntry, content: bytes | None) -> bool:
        return self._rules.by_name(entry.path) or (
            content is not None
            and (self._rules.by_content(entry.path, content) or self._is_copy(entry, content))
        )

    def _is_copy(self, entry: StagedEntry, content: bytes) -> bool:
        return self._twins.has_content(content) and not self._rules.excludes(entry.path)

    def _keep_content(
        self, entries: dict[bytes, TreeEntry], entry: StagedEntry, key: Key | None, content: bytes | None
    ) -> None:
        mark = self._sink.mark()
        place = b"%b/content/%d-%b" % (STAGED, entry.stage, _shown_id(entry, key))
        try:
            entries[place] = self._put(entry, key, content)
        except BudgetExceeded:
            self._sink.rollback(mark)
            self._warnings.append(
                f"the staged content of '{display_bytes(entry.path)}' is not captured: it is too large"
            )

    def _put(self, entry: StagedEntry, key: Key | None, content: bytes | None) -> TreeEntry:
        if content is None:
            if key is not None:
                raise BudgetExceeded  # sealing needs the whole content in memory
            _, tree = store_chunks(self._sink, self._limited(blob_blocks(self._git, entry.oid)))
            self._check_budget()
            return (b"", DIRECTORY, tree)
        data = seal(key, entry.path, b"staged", content) if key else content
        oid = self._sink.add(b"blob", data)
        self._check_budget()
        return (b"", FILE, oid)

    def _limited(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            yield block
            self._check_budget()

    def _check_budget(self) -> None:
        if self._sink.stored_bytes > self._max_bytes:
            raise BudgetExceeded


def _line(entry: StagedEntry, key: Key | None, secret: bool) -> bytes:
    oid = _shown_id(entry, key) if not secret or key is not None else b"sealed"
    return b"%b %06o %b %d\n" % (quote_path(entry.path), entry.mode, oid, entry.stage)


def _shown_id(entry: StagedEntry, key: Key | None) -> bytes:
    # The blob id of a secret file is a hash of the secret, so a keyed hash replaces it.
    if key is None:
        return entry.oid.encode("ascii")
    # A seal is bound to its path, so the same content at two paths needs two ids.
    return keyed_hash(key, entry.oid.encode("ascii"), entry.path)[:20].hex().encode("ascii")


MIN_CHUNKED = 4 << 10
"""Larger attachments are stored in chunks: a transcript grows at its end, and each capture attaches all of it."""
CHUNK_AVERAGE = 16 << 10
"""Small, because each capture stores the last chunk again."""

# Entries below the reserved name: lists, the staged index, attachments.

Entries = dict[bytes, TreeEntry]


def reserved_entries(
    capture: TreeCapture,
    environment: CapturedEnvironment,
    view: GitStatus,
    attach: tuple[tuple[str, bytes], ...],
    key: Key | None,
    warnings: list[str],
) -> tuple[Entries, tuple[str, ...]]:
    """Return all entries below the reserved name except the manifest, and the names of attachments."""
    sink = capture.writer
    entries: Entries = {**environment.assembled.reserved}
    for trees in (oids for oids in environment.pieces.values() if oids):
        entries.update(chunk_entries(trees))
    _put_lists(entries, sink, environment, view)
    scope = environment.scope
    left_out = path_filter(scope.ignore, scope.exclude, scope.fingerprint)
    free_bytes = capture.settings.budget - _stored(environment) - sink.stored_bytes
    try:
        saver = StagedIndexSaver(
            git=capture.repository.git,
            sink=sink,
            settings=capture.settings,
            key=key,
            free_bytes=free_bytes,
            state=capture.repository.state,
            warnings=warnings,
        )
        entries.update(saver.keep(view.staged, left_out))
    except (EnvhistError, OSError) as error:
        warnings.append(
            f"cannot store the staged index, the rest of the snapshot is complete: {in_words(error)}"
        )
    names = _put_attachments(entries, sink, attach, key, warnings)
    return entries, names


def _stored(environment: CapturedEnvironment) -> int:
    """Return the bytes that the workers stored. The few objects handed over to our pack are counted there."""
    return sum(pack.size for pack in environment.scan_result.packs)


def _put(entries: Entries, sink: ObjectSink, path: bytes, data: bytes) -> None:
    entries[path] = (b"", FILE, sink.add(b"blob", data))


def _put_lists(entries: Entries, sink: ObjectSink, environment: CapturedEnvironment, view: GitStatus) -> None:
    unstable = [item for item in environment.scan_result.missing if item.why is MissingReason.UNSTABLE]
    missing = [item for item in environment.scan_result.missing if item.why is not MissingReason.UNSTABLE]
    if missing:
        _put(entries, sink, MISSING, write_missing(missing))
    if unstable:
        _put(entries, sink, UNSTABLE, write_missing(unstable))
    rules = write_rules(environment.scope.ignore, environment.scope.exclude)
    if rules:
        _put(entries, sink, RULES, rules)
    if view.changed is not None:
        _put(entries, sink, GIT_CHANGED, write_git_changes(view.changed))


def _put_attachments(
    entries: Entries,
    sink: ObjectSink,
    attach: tuple[tuple[str, bytes], ...],
    key: Key | None,
    warnings: list[str],
) -> tuple[str, ...]:
    from git_envhist.snapshots.sealed_chunks import (
        store_sealed_chunks,  # loaded late: few captures have attachments
    )

    if attach and key is None:
        warnings.append("attachments are not stored: there is no key to seal them")
        return ()
    names = []
    for number, (name, data) in enumerate(attach, 1):
        # A file name can contain a secret, too.
        stored = stored_name(mask_tokens(f"{number}-{name}".encode("utf-8", "surrogateescape")))
        assert key is not None
        if len(data) < MIN_CHUNKED:
            _put(entries, sink, ATTACHMENTS + b"/" + stored, seal(key, EnvPath(stored), b"attachment", data))
        else:
            tree = store_sealed_chunks(sink, (data,), key, stored, b"attachment", CHUNK_AVERAGE)
            entries[ATTACHMENTS + b"/" + stored] = (b"", DIRECTORY, tree)
        names.append(stored.decode("utf-8", "surrogateescape"))
    return tuple(names)


NAMES = "names-in-the-clear"
"""A file that exists while a user still has to be warned about variable names stored unsealed."""


class CaptureContext(NamedTuple):
    """Repository, settings, keys and environment variables of a capture."""

    repository: Repository
    settings: Settings
    keys: KeyRing
    environ: Mapping[str, str]


class FinishedTree(NamedTuple):
    """A captured working tree, written as one tree."""

    tree: str
    packs: list[StagedPack]
    attachments: tuple[str, ...]
    facts: str
    """Digest of facts outside the files that a check depends on."""
    services: str
    """Digest of the states of services."""


@dataclass(slots=True)
class CapturedTree:
    """A captured working tree with everything needed to publish it."""

    context: CaptureContext
    staging: Staging
    capture: TreeCapture
    environment: CapturedEnvironment
    view: GitStatus
    key: Key | None
    warnings: list[str]
    started: float
    facts: ProbeRunner
    dumps: Dumps = NONE
    _finished: FinishedTree | None = None

    @property
    def content(self) -> str:
        """Return the value of `Env-Content`."""
        return self.environment.assembled.content

    def reuse_facts_of(self, snapshot: Snapshot) -> None:
        """Reuse the facts of a snapshot that has the same files and key."""
        # Facts about sealed files are fingerprints under a key, so the key must be the same.
        if (
            snapshot.trusted
            and snapshot.content == self.content
            and snapshot.key == (self.key.id if self.key else None)
        ):
            self.facts.same_files_tree = snapshot.tree

    @trace_step("write trees, manifests and facts")
    def finish(self, attach: tuple[tuple[str, bytes], ...] = ()) -> FinishedTree:
        """Write the tree and finish the packs; only the first call may pass attachments."""
        from git_envhist.capture.verdict_log import (  # loaded late: only a published snapshot needs it
            FACTS,
            circumstances,
            service_states,
        )

        if self._finished is None:
            sink, assembled = self.capture.writer, self.environment.assembled
            reserved, names = reserved_entries(
                self.capture, self.environment, self.view, attach, self.key, self.warnings
            )
            if self.dumps is not NONE:
                reserved.update(self._keep_dumps())
            environment, probes = self.environment, self.facts
            probes.collect(
                environment.scan_result,
                environment.merged,
                environment.records,
                cached=environment.base is not None,
            )
            if self.dumps is not NONE:
                probes.add_dumps(self.dumps)
            self.warnings += probes.warnings
            reserved.update(probes.entries())
            tree = write_whole_tree(sink, assembled.top, assembled.manifest, reserved).hex()
            facts = [
                (path.removeprefix(FACTS), oid.hex())
                for path, (_, _, oid) in reserved.items()
                if path.startswith(FACTS)
            ]
            packs = self.capture.finish(self.environment)
            self._finished = FinishedTree(
                tree=tree,
                packs=packs,
                attachments=names,
                facts=circumstances(facts),
                services=service_states(facts),
            )
        return self._finished

    def _keep_dumps(self) -> Entries:
        from git_envhist.service_dumps import store_dumps  # loaded late: few captures have dumps

        return store_dumps(self.capture.writer, self.dumps, self.key, self.warnings)

    def has_packages_of(self, before: Snapshot) -> bool:
        """Return whether the packages of the machine are the same as in a snapshot, as far as it recorded
        them."""
        now = self.facts.package_texts()
        if before.commit == self.environment.base:
            then = {name: kept.oid for name, kept in self.environment.facts.items()}
        else:
            with CatFile(self.context.repository.git) as reader:
                then = fact_ids(reader, before.commit)
        return all(then.get(name, oid) == oid for name, oid in now.items())

    def finish_unpublished(self) -> CaptureResult:
        """Publish nothing, but update the stat cache."""
        self.capture.remember_unpublished(self.environment)
        self._note_capture(None)
        seconds = time.monotonic() - self.started
        return CaptureResult(
            snapshot=None,
            files=self.environment.files,
            new_files=0,
            new_bytes=0,
            stored_bytes=0,
            seconds=seconds,
            missing=tuple(self.environment.scan_result.missing),
            warnings=tuple(self.warnings),
        )

    @trace_step("publish the snapshot")
    def publish(self, request: CaptureOptions) -> CaptureResult:
        """Publish the tree as a snapshot."""
        repository = self.context.repository
        timeline = ensure_timeline(repository, self.context.settings, self.warnings.append)
        at = current_time(repository.git, self.context.environ)
        finished = self.finish(request.attach)
        calls = self._recorded_calls()
        draft = self._draft(request, timeline, finished.attachments)
        commit = CommitDraft(
            tree=finished.tree,
            signature=signature(draft.actor, at),
            describe=lambda parent: self._describe(
                self._with_calls(draft, calls, parent, finished.tree), parent, finished.tree
            ),
            records=lambda commit: (*_records(request, draft, at), *self._known_verdict(commit, finished)),
            key=self.key,
            at=at,
        )
        done = publish(repository, self.staging, timeline, finished.packs, commit, self.capture.known)
        self._warn_of_names(request.trigger)
        self.environment.facts = self.facts.kept
        self.capture.remember(self.environment, done.commit)
        captured = self._captured(done)
        self._note_capture(captured.snapshot)
        return captured

    def _note_capture(self, snapshot: Snapshot | None) -> None:
        """Record in the list of tools' calls that everything before this capture is captured."""
        calls = ToolCalls(self.context.repository.state)
        if not calls.exists:
            return
        # A list that cannot be written only widens the time in which a call can have changed something.
        with suppress(Exception):
            newest = snapshot or self._newest_snapshot()
            if newest is not None:
                calls.looked(newest.id, wall_time(self.started), published=snapshot is not None)

    def _newest_snapshot(self) -> Snapshot | None:
        tip = self.environment.tip
        if tip is None:
            return None
        with CatFile(self.context.repository.git) as reader:
            answer = reader.read(tip)
        return None if answer is None else read_snapshot(tip, answer[1])

    def _recorded_calls(self) -> CallRecord:
        # The list describes the snapshot; no damage to it may prevent the snapshot.
        try:
            calls = ToolCalls(self.context.repository.state)
            return calls.record(time.time(), self.context.settings.agent_timeout)
        except Exception as error:
            trace(f"cannot read the list of tools' calls: {error}")
            return NO_RECORD

    def _with_calls(
        self, draft: MessageFields, calls: CallRecord, parent: str | None, tree: str
    ) -> MessageFields:
        """Return the message with the calls and their window; without both if it cannot be written with them."""
        if calls == NO_RECORD:
            return draft
        try:
            complete = replace(draft, window=calls.window, calls=self._with_written(calls, parent, tree))
            write_message(complete)
        except Exception as error:
            trace(f"the snapshot lists no calls of tools: {error}")
            return draft
        return complete

    def _with_written(self, calls: CallRecord, parent: str | None, tree: str) -> tuple[ToolCall, ...]:
        """Return the calls with the files that contain exactly what each was to write into them."""
        if not any(calls.writes) or parent is None:
            return calls.calls
        git = self.context.repository.git.with_objects(self.staging.path)
        length = len(tree) // 2
        with CatFile(git) as reader:
            sides = [TreeReader(reader, name, length) for name in (parent, tree)]

            def ids(path: str) -> list[str]:
                stored = stored_path(EnvPath(os.fsencode(path)))
                return [(found.hex() if (found := side.look_up(stored)) else "") for side in sides]

            return tuple(
                replace(
                    call, wrote=tuple(one.path for one in writes if ids(one.path) == [one.before, one.after])
                )
                for call, writes in zip(calls.calls, calls.writes, strict=True)
            )

    def _warn_of_names(self, trigger: Trigger) -> None:
        """Store the warning about names for the next manual capture, which a user reads."""
        kept = os.path.join(self.context.repository.common_state, NAMES)
        with suppress(OSError):
            if NAMES_IN_THE_CLEAR in self.warnings and trigger is not Trigger.MANUAL:
                os.close(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            elif trigger is Trigger.MANUAL and os.path.exists(kept):
                os.unlink(kept)
                self.warnings.append(NAMES_IN_THE_CLEAR)

    def _known_verdict(self, commit: str, finished: FinishedTree) -> tuple[NoteRecord, ...]:
        """Return the check result of an identical environment."""
        from git_envhist.capture.verdict_log import (
            carried_record,  # loaded late: only a published snapshot needs it
        )

        state = self.context.repository.common_state
        note = carried_record(state, self.content, finished.facts, finished.services)
        # An unsigned result would not be trusted.
        return () if note is None or self.key is None else (signed(note, SnapshotId(commit), self.key),)

    def _draft(self, request: CaptureOptions, timeline: str, attachments: tuple[str, ...]) -> MessageFields:
        from git_envhist.secrets.masking import (  # loaded late: an unchanged capture has no message
            mask_pair,
            mask_secrets,
        )
        from git_envhist.secrets.masking import (
            mask_text as mask,  # loaded late: an unchanged capture has no message
        )

        intent, source = _intent(request, self.view)
        return MessageFields(
            intent=mask_secrets(intent),
            intent_source=source,
            timeline=timeline,
            trigger=request.trigger,
            actor=request.actor or current_actor(self.context.settings, self.context.environ),
            head=self.view.head,
            branch=self.view.branch,
            missing_count=len(self.environment.scan_result.missing),
            content=self.content,
            changed=ChangeCount(),
            external_id=mask(request.external_id) if request.external_id else None,
            meta=tuple(mask_pair(key, value) for key, value in request.meta),
            attachments=attachments,
            restored_from=request.restored_from,
            forked_from=request.forked_from,
            merged=request.merged,
            applied=request.applied,
            restore=request.restore,
            key=self.key.id if self.key else None,
        )

    def _describe(self, draft: MessageFields, parent: str | None, tree: str) -> MessageFields:
        if parent is None:
            changed = self.environment.first_count()
            # Empty directories count as changes but are not files, so the summary uses the number of files.
            summary = describe_counts(ChangeCount(added=self.environment.files), first=True)
            return replace(draft, changed=changed, story=summary)
        git = self.context.repository.git.with_objects(self.staging.path)
        try:
            known = self.environment.changed if parent == self.environment.base else None
            changed = count_changes(compare(git, parent, tree, brief=True)) if known is None else known
            facts = self._changed_facts(git, parent, tree)
        except EnvhistError as error:
            # A damaged parent must not make this capture fail.
            self.warnings.append(f"cannot determine what changed: {in_words(error)}")
            return draft
        return replace(draft, changed=changed, story=summarize(facts, changed, kinds(), names=False))

    def _changed_facts(self, git: Git, parent: str, tree: str) -> tuple[FactChange, ...]:
        """Return the facts that differ from the parent."""
        if parent == self.environment.base and self.environment.facts == self.facts.kept:
            return ()
        with CatFile(git) as reader:
            return facts_for_summary(reader, parent, tree, self.context.keys.get)

    def _captured(self, done: PublishedSnapshot) -> CaptureResult:
        environment = self.environment
        snapshot = read_snapshot(done.commit, done.data)
        new_files, new_bytes = environment.merged.fresh()
        if environment.base is None and done.parent is not None:
            # Without a stat cache everything was read again, so only the comparison of trees shows how much
            # is new.
            counted = snapshot.changed.added + snapshot.changed.modified
            new_files, new_bytes = min(new_files, counted), new_bytes if counted >= new_files else 0
        return CaptureResult(
            snapshot,
            files=environment.files,
            new_files=new_files,
            new_bytes=new_bytes,
            stored_bytes=done.stored_bytes,
            seconds=time.monotonic() - self.started,
            missing=tuple(environment.scan_result.missing),
            warnings=(*self.warnings, *done.warnings),
            directories=environment.largest() if done.parent is None else (),
            first=done.parent is None,
            services=self._kept_services(),
            sealed_first=environment.seals_now() and self.context.keys.first_use(),
        )

    def _kept_services(self) -> tuple[KeptService, ...]:
        """Return the service states stored in the snapshot."""
        dumps = self.dumps.taken if self.key is not None else ()
        return tuple(
            KeptService(dump.name, os.fstat(dump.file.fileno()).st_size, dump.contents.summary)
            for dump in dumps
        )


def _intent(request: CaptureOptions, view: GitStatus) -> tuple[bytes, IntentSource]:
    if request.intent is not None and request.intent.strip():
        return request.intent, request.intent_source or IntentSource.GIVEN
    if view.subject:
        from git_envhist.history.titles import substitute_intent  # loaded late: most captures have an intent

        return substitute_intent(view.head or "", view.subject), IntentSource.COMMIT
    return b"", IntentSource.NONE


def _records(request: CaptureOptions, draft: MessageFields, at: datetime) -> tuple[NoteRecord, ...]:
    text = draft.intent.decode("utf-8", "replace")
    fields: dict[str, object] = {"text": text, "source": draft.intent_source.value}
    records = [NoteRecord("intent", at, fields)]
    if request.name is not None:
        records.append(name_record(request.name, at))
    return tuple(records)
