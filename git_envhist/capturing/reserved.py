"""What stands below the reserved name beside the environment itself: lists, the staged tree, attachments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from git_envhist.capture.ignore import path_filter, path_matcher
from git_envhist.capture.seal import keyed_hash, seal
from git_envhist.capture.secrets import SecretRules, mask_tokens
from git_envhist.capturing.take import Taken
from git_envhist.errors import EnvhistError
from git_envhist.model import EnvPath, WhyMissing
from git_envhist.settings import Settings
from git_envhist.store.gitview import GitView, StagedEntry
from git_envhist.store.keys import Key
from git_envhist.store.layout import ATTACHMENTS, GIT_CHANGED, MISSING, RULES, STAGED, UNSTABLE
from git_envhist.store.listings import write_git_changes, write_missing, write_rules
from git_envhist.store.names import stored_name
from git_envhist.store.objects import CatFile
from git_envhist.store.quoting import quote_path
from git_envhist.store.repository import Repository
from git_envhist.store.snapshots import FILE, ObjectSink, TreeEntry, pieces_entries

Entries = dict[bytes, TreeEntry]


class Taking(Protocol):
    @property
    def writer(self) -> ObjectSink: ...

    @property
    def repository(self) -> Repository: ...

    @property
    def settings(self) -> Settings: ...


def reserved_entries(
    taking: Taking,
    taken: Taken,
    view: GitView,
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
    try:
        _put_staged(entries, sink, taking, view.staged, key, left_out)
    except (EnvhistError, OSError) as error:
        warnings.append(f"the staged tree could not be kept, the snapshot is whole: {error}")
    names = _put_attachments(entries, sink, attach, key, warnings)
    return entries, names


def _put(entries: Entries, sink: ObjectSink, path: bytes, data: bytes) -> None:
    entries[path] = (b"", FILE, sink.add(b"blob", data))


def _put_lists(entries: Entries, sink: ObjectSink, taken: Taken, view: GitView) -> None:
    unstable = [item for item in taken.gathered.missing if item.why is WhyMissing.UNSTABLE]
    missing = [item for item in taken.gathered.missing if item.why is not WhyMissing.UNSTABLE]
    if missing:
        _put(entries, sink, MISSING, write_missing(missing))
    if unstable:
        _put(entries, sink, UNSTABLE, write_missing(unstable))
    rules = write_rules(taken.survey.ignore, taken.survey.exclude)
    if rules:
        _put(entries, sink, RULES, rules)
    if view.changed is not None:
        _put(entries, sink, GIT_CHANGED, write_git_changes(view.changed))


def _put_staged(
    entries: Entries,
    sink: ObjectSink,
    taking: Taking,
    staged: tuple[StagedEntry, ...],
    key: Key | None,
    left_out: Callable[[bytes], bool],
) -> None:
    if not staged:
        return
    rules = SecretRules(path_matcher(list(taking.settings.secret)))
    lines = []
    with CatFile(taking.repository.git) as reader:
        for entry in staged:
            found = reader.read(entry.oid) if entry.mode else None
            content = found[1] if found is not None else b""
            secret = rules.by_name(entry.path) or rules.by_content(entry.path, content)
            lines.append(_staged_line(entry, key if secret else None, secret))
            wanted = entry.needs_content and not left_out(entry.path)
            if wanted and found is not None and not (secret and key is None):
                data = seal(key, entry.path, b"staged", content) if secret and key else content
                place = b"%b/content/%d-%b" % (
                    STAGED,
                    entry.stage,
                    _shown_id(entry, key if secret else None),
                )
                _put(entries, sink, place, data)
    _put(entries, sink, STAGED + b"/index", b"".join(sorted(lines)))


def _staged_line(entry: StagedEntry, key: Key | None, secret: bool) -> bytes:
    oid = _shown_id(entry, key) if not secret or key is not None else b"sealed"
    return b"%b %06o %b %d\n" % (quote_path(entry.path), entry.mode, oid, entry.stage)


def _shown_id(entry: StagedEntry, key: Key | None) -> bytes:
    # The bare id of a secret file's blob is a hash of the secret.
    if key is None:
        return entry.oid.encode("ascii")
    # A seal is bound to its path: equal content of two paths has two ids, and two places.
    return keyed_hash(key, entry.oid.encode("ascii"), entry.path)[:20].hex().encode("ascii")


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
