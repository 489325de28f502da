"""What stands below the reserved name beside the environment itself: lists, the staged tree, attachments."""

from __future__ import annotations

from typing import Protocol

from git_envhist.capture.ignore import path_filter
from git_envhist.capture.seal import seal
from git_envhist.capture.secrets import mask_tokens
from git_envhist.capturing.staged import StagedIndexSaver
from git_envhist.capturing.taken import CapturedEnvironment
from git_envhist.errors import EnvhistError, in_words
from git_envhist.model import EnvPath, MissingReason
from git_envhist.settings import Settings
from git_envhist.store.gitview import GitStatus
from git_envhist.store.keys import Key
from git_envhist.store.layout import ATTACHMENTS, GIT_CHANGED, MISSING, RULES, UNSTABLE
from git_envhist.store.listings import write_git_changes, write_missing, write_rules
from git_envhist.store.names import stored_name
from git_envhist.store.packs import PackWriter
from git_envhist.store.repository import Repository
from git_envhist.store.snapshots import FILE, ObjectSink, TreeEntry, pieces_entries

Entries = dict[bytes, TreeEntry]


class Taking(Protocol):
    @property
    def writer(self) -> PackWriter: ...

    @property
    def repository(self) -> Repository: ...

    @property
    def settings(self) -> Settings: ...


def reserved_entries(
    taking: Taking,
    taken: CapturedEnvironment,
    view: GitStatus,
    attach: tuple[tuple[str, bytes], ...],
    key: Key | None,
    warnings: list[str],
) -> tuple[Entries, tuple[str, ...]]:
    """Everything below the reserved name but the manifest, and the names of what was attached."""
    sink = taking.writer
    entries: Entries = {**taken.assembled.reserved}
    for trees in (oids for oids in taken.pieces.values() if oids):
        entries.update(pieces_entries(trees))
    _put_lists(entries, sink, taken, view)
    extent = taken.survey
    left_out = path_filter(extent.ignore, extent.exclude, extent.fingerprint)
    room = taking.settings.budget - _stored(taken) - sink.stored_bytes
    try:
        keeper = StagedIndexSaver(
            taking.repository.git, sink, taking.settings, key, room, taking.repository.state, warnings
        )
        entries.update(keeper.keep(view.staged, left_out))
    except (EnvhistError, OSError) as error:
        warnings.append(f"the staged tree could not be kept, the snapshot is whole: {in_words(error)}")
    names = _put_attachments(entries, sink, attach, key, warnings)
    return entries, names


def _stored(taken: CapturedEnvironment) -> int:
    """How many bytes the workers have stored; a few small objects they handed over, and our own pack counts these."""
    return sum(pack.size for pack in taken.gathered.packs)


def _put(entries: Entries, sink: ObjectSink, path: bytes, data: bytes) -> None:
    entries[path] = (b"", FILE, sink.add(b"blob", data))


def _put_lists(entries: Entries, sink: ObjectSink, taken: CapturedEnvironment, view: GitStatus) -> None:
    unstable = [item for item in taken.gathered.missing if item.why is MissingReason.UNSTABLE]
    missing = [item for item in taken.gathered.missing if item.why is not MissingReason.UNSTABLE]
    if missing:
        _put(entries, sink, MISSING, write_missing(missing))
    if unstable:
        _put(entries, sink, UNSTABLE, write_missing(unstable))
    rules = write_rules(taken.survey.ignore, taken.survey.exclude)
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
    if attach and key is None:
        warnings.append("attachments are left out: no key can be kept here to seal them")
        return ()
    names = []
    for number, (name, data) in enumerate(attach, 1):
        # The name of a file may hold what its content may not show.
        stored = stored_name(mask_tokens(f"{number}-{name}".encode("utf-8", "surrogateescape")))
        assert key is not None
        _put(entries, sink, ATTACHMENTS + b"/" + stored, seal(key, EnvPath(stored), b"attachment", data))
        names.append(stored.decode("utf-8", "surrogateescape"))
    return tuple(names)
