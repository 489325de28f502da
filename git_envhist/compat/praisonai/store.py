"""Store the checkpoints of one workspace as snapshots of a history of its own.

The metadata of a snapshot make it a checkpoint: `checkpoint` is its kind, `after` the checkpoint that was current
before, `metadata` the values of the caller. A small file next to the repository names the current checkpoint; if it
is lost, the newest one is current.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from functools import partial
from typing import Any

from git_envhist.api import EnvHistory
from git_envhist.compat.file_diff import changed_files, compare_contents
from git_envhist.compat.praisonai.types import (
    EXCLUDED,
    MAX_FILE_SIZE,
    SHORT,
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    FileDiff,
)
from git_envhist.compat.storage import LibraryRules, LibraryStorage, literal_pattern, read_json, write_json
from git_envhist.errors import EnvhistError, SnapshotNotFound
from git_envhist.git.cat_file import CatFile, empty_tree
from git_envhist.git.process import Git
from git_envhist.model import EnvPath, RestoreResult, Snapshot
from git_envhist.restore.options import RestoreOptions
from git_envhist.rewrite.mark_for_drop import drop_now, drop_soon, is_marked
from git_envhist.secrets.seal import unseal
from git_envhist.tracking.attachments import read_attachments

KIND, AFTER, METADATA = "checkpoint", "after", "metadata"
INITIAL, SAVED = "initial", "saved"
INITIAL_MESSAGE = "Initial checkpoint"
POSITION, AT, DELETED = "position", "at", "deleted"
OWN = "/.git"
"""The workspace's own repository is never captured, as in git; this does not depend on the excluded patterns."""


class CheckpointStore:
    """The checkpoints of one workspace; the caller holds its lock for operations that belong together."""

    def __init__(self, config: CheckpointConfig, *, usual: bool) -> None:
        """`usual` is set if the caller gave no patterns, so that the configuration has the library's default list."""
        self._config = config
        self._usual = usual and tuple(config.exclude_patterns) == EXCLUDED
        self._keeping = LibraryStorage(config.storage_dir or "")
        self.lock = self._keeping.lock(config.workspace_dir)

    @property
    def root(self) -> str:
        return os.path.realpath(self._config.workspace_dir)

    def begin(self) -> None:
        """Take the first snapshot if there is none: the state of the workspace at the start."""
        history = self.history()
        if not history.log(limit=1):
            self._capture(history, INITIAL_MESSAGE, INITIAL, {}, ())

    def history(self, *, capped: bool = True) -> EnvHistory:
        """Return the history, opened with the rules of the workspace."""
        config = self._config
        large = self._too_large() if capped else ()
        exclude = (*self._patterns(), *large, OWN)
        return self._keeping.open(self.root, LibraryRules(exclude, config.user_name, config.user_email))

    def save(
        self,
        message: str,
        *,
        allow_empty: bool = False,
        metadata: Mapping[str, Any] | None = None,
        attached: Sequence[tuple[str, bytes]] = (),
    ) -> Snapshot | None:
        """Take a checkpoint; return None if nothing changed since the previous one."""
        history = self.history()
        all_of_them = history.log()
        only_begun = not any(_kind(one) == SAVED for one in all_of_them)
        if only_begun and all_of_them:
            # For the first save, files that existed at the start are changes.
            allow_empty = allow_empty or _has_files(history.repository.git, all_of_them[0].tree)
        return self._capture(history, message, SAVED, metadata or {}, attached, if_changed=not allow_empty)

    def restore(self, target: Snapshot) -> RestoreResult:
        """Restore the workspace to a checkpoint."""
        # Files above the size limit are not captured, so a restore does not change them.
        restored = self.history().restore(target, options=RestoreOptions())
        self._set_current(target.id)
        return restored

    def checkpoints(self) -> list[Snapshot]:
        """Return all checkpoints, newest first."""
        return [one for one in self.history(capped=False).log() if _kind(one) and not is_marked(one)]

    def reachable(self) -> list[Snapshot]:
        """Return all checkpoints that can be restored, newest first, including pruned ones that still exist."""
        history = self.history(capped=False)
        deleted = self._read_position().get(DELETED) or ()
        pruned = [item.snapshot for item in history.dropper.trash() if item.snapshot.id not in deleted]
        return [one for one in (*history.log(), *pruned) if _kind(one)]

    def line(self) -> list[Snapshot]:
        """Return the current checkpoint and its predecessors, newest first."""
        every = self.reachable()
        position = self._read_position().get(AT)
        here: Snapshot | None = next((one for one in every if one.id == position), next(iter(every), None))
        found: list[Snapshot] = []
        while here is not None:
            found.append(here)
            here = before_of(here, every)
        return found

    def attachments(self, snapshot: Snapshot) -> list[tuple[bytes, bytes]]:
        """Return the files attached to a checkpoint: (name, bytes)."""
        history = self.history(capped=False)
        with CatFile(history.repository.git) as reader:
            return list(read_attachments(reader, snapshot, partial(_unseal, history)))

    def delete(self, snapshot: Snapshot) -> None:
        """Drop a checkpoint."""
        values = self._read_position()
        self._write_position({**values, DELETED: [*(values.get(DELETED) or ()), snapshot.id]})
        drop_now(self.history(capped=False), [snapshot])

    def prune(self, snapshots: Sequence[Snapshot]) -> None:
        """Drop checkpoints that exceed the limit of the list."""
        drop_soon(self.history(capped=False), snapshots)

    def forget(self) -> None:
        """Remove every checkpoint and their place."""
        self._keeping.forget(self.root)

    def _capture(
        self,
        history: EnvHistory,
        message: str,
        kind: str,
        metadata: Mapping[str, Any],
        attached: Sequence[tuple[str, bytes]],
        *,
        if_changed: bool = False,
    ) -> Snapshot | None:
        meta = [(KIND, kind), (AFTER, self._current(history))]
        if metadata:
            meta.append(
                (METADATA, json.dumps({str(key): value for key, value in metadata.items()}, default=str))
            )
        captured = history.capture(message, if_changed=if_changed, meta=meta, attached=attached)
        if captured.snapshot is not None:
            self._set_current(captured.snapshot.id)
        return captured.snapshot

    def _patterns(self) -> tuple[str, ...]:
        # The original library excludes `.git` to protect its own repository; here a nested repository is captured.
        patterns = self._config.exclude_patterns
        return tuple(pattern for pattern in patterns if not (self._usual and pattern == ".git"))

    def _too_large(self) -> tuple[str, ...]:
        # The default limit exists because large files are expensive in the original library; here they are stored in
        # chunks.
        limit = self._config.max_file_size
        return () if limit in (0, MAX_FILE_SIZE) or limit < 0 else tuple(_larger_than(self.root, limit))

    @property
    def _position_file(self) -> str:
        return os.path.join(self._keeping.place_of(self.root), POSITION)

    def _read_position(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {}
        return read_json(self._position_file, lambda values: {**values}, nothing)

    def _write_position(self, values: Mapping[str, Any]) -> None:
        write_json(self._position_file, dict(values))

    def _current(self, history: EnvHistory) -> str:
        position = self._read_position().get(AT)
        return str(position) if position else next((one.id for one in history.log() if _kind(one)), "")

    def _set_current(self, checkpoint: str) -> None:
        self._write_position({**self._read_position(), AT: checkpoint})


def metadata_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the metadata that the caller stored with a checkpoint."""
    try:
        values = json.loads(dict(snapshot.meta).get(METADATA, "{}"))
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _kind(snapshot: Snapshot) -> str | None:
    return dict(snapshot.meta).get(KIND)


def before_of(snapshot: Snapshot, every: Sequence[Snapshot]) -> Snapshot | None:
    """Return the checkpoint that was current before this one; `every` is newest first."""
    after = dict(snapshot.meta).get(AFTER)
    if not after:
        return None
    named = next((one for one in every if one.id == after), None)
    # If that one was deleted, return the next older one.
    ids = [one.id for one in every]
    older = every[ids.index(snapshot.id) + 1 :] if snapshot.id in ids else ()
    return named or next(iter(older), None)


def _unseal(history: EnvHistory, name: EnvPath, sealed: bytes) -> bytes:
    return unseal(history.keys.to_open, name, b"attachment", sealed)


def _has_files(git: Git, tree: str) -> bool:
    names = git.run("ls-tree", "-z", "--name-only", tree).split(b"\0")
    return any(name not in (b"", b".envhist") for name in names)


def _larger_than(root: str, limit: int) -> list[str]:
    found = []
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            if _size(path) > limit:
                found.append("/" + literal_pattern(os.path.relpath(path, root)))
    return found


def _size(path: str) -> int:
    try:
        seen = os.lstat(path)
    except OSError:
        # The file may be deleted meanwhile.
        return 0
    return seen.st_size if stat.S_ISREG(seen.st_mode) else 0


# The conversation of a workspace, saved and restored together with the files.

ATTACHED = "conversation.json"
COUNT = "message_count"


class Conversation:
    """The messages of a conversation: in a list, in an agent or in a store of sessions."""

    def __init__(self, source: Any, session_id: str | None = None) -> None:
        """Wrap a list of messages, an agent with a `chat_history`, or a store and a session id."""
        self._source = source
        self._session_id = session_id
        reads = callable(getattr(source, "get_chat_history", None)) and session_id is not None
        if not reads and not isinstance(self._list(), MutableSequence):
            raise TypeError(
                "a list of messages, an agent with a chat_history, or a store of sessions and an id is wanted"
            )
        self._is_store = reads

    def metadata(self) -> dict[str, int]:
        """Return the metadata of a checkpoint."""
        return {COUNT: len(self._messages())}

    def attached(self) -> list[tuple[str, bytes]]:
        """Return the messages as an attachment, which is sealed."""
        return [(ATTACHED, _as_json(self._messages()).encode("utf-8", "surrogateescape"))]

    def plain(self) -> list[Any]:
        """Return the messages as plain values."""
        return _as_kept(self._messages())

    def restore(self, count: int, known: Sequence[Any] | None) -> None:
        """Cut it to its first `count` messages; `kept` are the messages of that time, if known."""
        here = list(self._messages())
        same = count if known is None else _same(_as_kept(here), known)
        then = [*here[:same], *(known or ())[same:]]
        if len(then) == same < len(here):
            self._truncate(same)
        elif len(then) > same:
            self._replace_messages(then)

    def _truncate(self, count: int) -> None:
        revert: Callable[[str | None, int], object] | None = getattr(self._source, "revert_to_message", None)
        if self._is_store and revert is not None and count > 0:
            # The index is that of the last message to keep.
            revert(self._session_id, count - 1)
        else:
            self._replace_messages(list(self._messages())[:count])

    def _replace_messages(self, messages: list[Any]) -> None:
        if not self._is_store:
            self._list()[:] = messages
        elif hasattr(self._source, "set_chat_history"):
            self._source.set_chat_history(self._session_id, messages)

    def _messages(self) -> Sequence[Any]:
        source: Sequence[Any] = (
            self._source.get_chat_history(self._session_id) if self._is_store else self._list()
        )
        return source

    def _list(self) -> Any:
        return getattr(self._source, "chat_history", self._source)


def _same(here: Sequence[Any], known: Sequence[Any]) -> int:
    """Return the number of equal messages at the start; a conversation may have been rewritten since."""
    pairs = zip(here, known, strict=False)
    return next(
        (number for number, (one, other) in enumerate(pairs) if one != other), min(len(here), len(known))
    )


def _as_json(messages: Sequence[Any]) -> str:
    return json.dumps(list(messages), default=str, ensure_ascii=False)


def _as_kept(messages: Sequence[Any]) -> list[Any]:
    known: list[Any] = json.loads(_as_json(messages))
    return known


# The synchronous implementation of the service, without its events.

STEP = re.compile(r"^\[step-(\d+)\]\s*")
HEAD = re.compile(r"HEAD(?:(\^+)|~(\d{1,6})|(~))?")
Counts = tuple[list[str], int, int]


class NothingChanged(Exception):
    """There are no changes to save."""


class WorkspaceCheckpoints:
    """The checkpoints of one workspace; calls run one after another."""

    def __init__(self, config: CheckpointConfig, book: CheckpointStore) -> None:
        self.conversation: Conversation | None = None
        self._config = config
        self._store = book
        self._counts: dict[str, Counts] = {}

    def begin(self) -> None:
        with self._store.lock:
            self._store.begin()

    def save(
        self, message: str, allow_empty: bool, metadata: Mapping[str, Any] | None, keep: str = ""
    ) -> tuple[Checkpoint, int]:
        """Return the new checkpoint, and the number of pruned ones; `keep` is never pruned."""
        values: dict[str, Any] = {
            **(self.conversation.metadata() if self.conversation else {}),
            **(metadata or {}),
        }
        attached = self.conversation.attached() if self.conversation else []
        with self._store.lock:
            saved = self._store.save(message, allow_empty=allow_empty, metadata=values, attached=attached)
            if saved is None:
                raise NothingChanged
            every = self._store.checkpoints()
            return self._with_changes([saved], every)[0], self._prune(every, keep)

    def restore(
        self, words: str | Snapshot, unsaved: str
    ) -> tuple[tuple[Checkpoint, int] | None, Checkpoint]:
        """Restore a checkpoint and the conversation; return the checkpoint saved before, and the restored one."""
        with self._store.lock:
            target = self.resolve(words)
            try:
                saved = self.save(unsaved, self._has_unsaved_messages(), None, target.id)
            except NothingChanged:
                saved = None
            except (EnvhistError, OSError) as error:
                raise EnvhistError(f"Pre-restore snapshot failed: {error}") from error
            self._store.restore(target)
            count = metadata_of(target).get(COUNT)
            if self.conversation is not None and isinstance(count, int):
                self.conversation.restore(count, self._kept_messages(target))
            return saved, self._with_changes([target], self._store.checkpoints())[0]

    def _has_unsaved_messages(self) -> bool:
        """Return whether the conversation has messages that no checkpoint has and that cutting it would lose."""
        if self.conversation is None:
            return False
        line = self._store.line()
        known = self._kept_messages(line[0]) if line else None
        return self.conversation.plain() != (known or [])

    def resolve(self, words: str | Snapshot) -> Snapshot:
        """Return the checkpoint that an id or HEAD expression names; raises `SnapshotNotFound` if there is none."""
        if isinstance(words, Snapshot):
            return words
        with self._store.lock:
            if back := HEAD.fullmatch(words):
                # Count as git does, along the predecessors of the current checkpoint.
                steps = len(back[1]) if back[1] else int(back[2] or (back[3] and 1) or 0)
                found = next(iter(self._store.line()[steps:]), None)
            else:
                found = next((one for one in self._store.reachable() if one.id.startswith(words)), None)
        if found is None:
            raise SnapshotNotFound(words)
        return found

    def line(self) -> list[Snapshot]:
        with self._store.lock:
            return self._store.line()

    def listed(self, limit: int | None) -> list[Checkpoint]:
        with self._store.lock:
            every = self._store.checkpoints()
            return self._with_changes(every[:limit] if limit is not None else every, every)

    def get(self, words: str) -> Checkpoint | None:
        with self._store.lock:
            every = self._store.checkpoints()
            found = [one for one in every if words and one.id.startswith(words)]
            return self._with_changes(found[:1], every)[0] if found else None

    def delete(self, words: str) -> bool:
        """Delete one checkpoint; return whether it existed."""
        with self._store.lock:
            every = self._store.checkpoints()
            found = [one for one in every if words and one.id.startswith(words)]
            for one in found[:1]:
                self._store.delete(one)
            return bool(found)

    def forget(self) -> None:
        with self._store.lock:
            self._store.forget()

    def diff(self, from_id: str | None, to_id: str | None) -> CheckpointDiff:
        """Compare two checkpoints; by default the predecessor of the current one with the workspace."""
        with self._store.lock:
            line = self._store.line()
            before = self.resolve(from_id) if from_id else line[min(1, len(line) - 1)]
            after = self.resolve(to_id) if to_id else None
            changed, patch = compare_contents(self._store.history(), before, after or "now")
        root = os.path.abspath(self._config.workspace_dir)
        files = [
            FileDiff(
                file.path,
                os.path.join(root, file.path),
                file.status,
                file.additions,
                file.deletions,
                file.before,
                file.after,
            )
            for file in changed
        ]
        short = after.id[:SHORT] if after is not None else None
        return CheckpointDiff(before.id[:SHORT], short, files, diff_content=patch)

    def _prune(self, every: Sequence[Snapshot], keep: str) -> int:
        limit = self._config.max_checkpoints
        begun = [one for one in every if dict(one.meta).get(KIND) == INITIAL]
        saved = [one for one in every if one not in begun]
        too_many = [one for one in saved[limit:] if one.id != keep] if limit > 0 else []
        if too_many:
            # The initial snapshot is not counted, as in the original library.
            self._store.prune([*too_many, *(one for one in begun if one.id != keep)])
        return len(too_many)

    def _with_changes(self, wanted: Sequence[Snapshot], every: Sequence[Snapshot]) -> list[Checkpoint]:
        return [_as_checkpoint(one, self._counted(one, every)) for one in wanted]

    def _counted(self, snapshot: Snapshot, every: Sequence[Snapshot]) -> Counts:
        known = self._counts.get(snapshot.id)
        if known is None:
            known = self._counts[snapshot.id] = self._count(snapshot, before_of(snapshot, every))
        return known

    def _count(self, snapshot: Snapshot, before: Snapshot | None) -> Counts:
        if before is None or dict(snapshot.meta).get(KIND) == INITIAL:
            return [], 0, 0
        git = self._store.history(capped=False).repository.git
        # For the first save, all files are new.
        begun = dict(before.meta).get(KIND) == INITIAL
        files = changed_files(git, empty_tree(git, snapshot.tree) if begun else before.tree, snapshot.tree)
        paths = [file.path for file in files]
        return paths, sum(file.additions for file in files), sum(file.deletions for file in files)

    def _kept_messages(self, target: Snapshot) -> list[Any] | None:
        if not target.attachments:
            return None
        for name, data in self._store.attachments(target):
            if name.endswith(b"conversation.json"):
                known = json.loads(data)
                return known if isinstance(known, list) else None
        return None


def _as_checkpoint(snapshot: Snapshot, counts: Counts) -> Checkpoint:
    step = STEP.match(snapshot.intent)
    paths, insertions, deletions = counts
    return Checkpoint(
        snapshot.id,
        snapshot.id[:SHORT],
        snapshot.intent,
        snapshot.at,
        list(paths),
        insertions,
        deletions,
        int(step.group(1)) if step else None,
        metadata_of(snapshot),
    )
