"""The checkpoints of one workspace, as moments of a history that is kept for it alone.

What makes a moment a checkpoint stands on its card: `checkpoint` says which kind it is, `after` the one that the
workspace stood on before, `metadata` what the caller gave along. Which one the workspace stands on now is told by a
small file beside the repository; where that is lost, it is the newest.
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
from git_envhist.rewrite.marking import drop_now, drop_soon, is_marked
from git_envhist.secrets.seal import unseal
from git_envhist.tracking.attachments import read_attachments

KIND, AFTER, METADATA = "checkpoint", "after", "metadata"
INITIAL, SAVED = "initial", "saved"
INITIAL_MESSAGE = "Initial checkpoint"
POSITION, AT, DELETED = "position", "at", "deleted"
OWN = "/.git"
"""The workspace's own repository is never a part of it, whatever is excluded, as git has it."""


class CheckpointStore:
    """The checkpoints of one workspace; whoever calls holds its lock while several things belong together."""

    def __init__(self, config: CheckpointConfig, *, usual: bool) -> None:
        """`usual`: nobody said what to exclude, so that what stands in the configuration is the library's own list."""
        self._config = config
        self._usual = usual and tuple(config.exclude_patterns) == EXCLUDED
        self._keeping = LibraryStorage(config.storage_dir or "")
        self.lock = self._keeping.lock(config.workspace_dir)

    @property
    def root(self) -> str:
        return os.path.realpath(self._config.workspace_dir)

    def begin(self) -> None:
        """Take the first moment, where there is none yet: what a workspace was like when somebody began to look."""
        history = self.history()
        if not history.log(limit=1):
            self._capture(history, INITIAL_MESSAGE, INITIAL, {}, ())

    def history(self, *, capped: bool = True) -> EnvHistory:
        """The history, under the rules of the workspace."""
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
        """The checkpoint that was made; None where nothing changed since the one before."""
        history = self.history()
        all_of_them = history.log()
        only_begun = not any(_kind(one) == SAVED for one in all_of_them)
        if only_begun and all_of_them:
            # What was there when it began is new to whoever saves for the first time.
            allow_empty = allow_empty or _holds_something(history.repository.git, all_of_them[0].tree)
        return self._capture(history, message, SAVED, metadata or {}, attached, if_changed=not allow_empty)

    def restore(self, target: Snapshot) -> RestoreResult:
        """Bring the workspace back to a checkpoint."""
        # What is too large to be saved is not seen, so that it stays where it is.
        restored = self.history().restore(target, options=RestoreOptions())
        self._stand_on(target.id)
        return restored

    def checkpoints(self) -> list[Snapshot]:
        """All of them, newest first."""
        return [one for one in self.history(capped=False).log() if _kind(one) and not is_marked(one)]

    def reachable(self) -> list[Snapshot]:
        """All that can be gone back to, newest first: those too that there was no room for, as long as there are."""
        history = self.history(capped=False)
        deleted = self._said().get(DELETED) or ()
        pruned = [item.snapshot for item in history.dropper.trash() if item.snapshot.id not in deleted]
        return [one for one in (*history.log(), *pruned) if _kind(one)]

    def line(self) -> list[Snapshot]:
        """The one that the workspace stands on, and those that it stood on before, newest first."""
        every = self.reachable()
        position = self._said().get(AT)
        here: Snapshot | None = next((one for one in every if one.id == position), next(iter(every), None))
        found: list[Snapshot] = []
        while here is not None:
            found.append(here)
            here = before_of(here, every)
        return found

    def attachments(self, snapshot: Snapshot) -> list[tuple[bytes, bytes]]:
        """What was kept with a checkpoint: (name, bytes)."""
        history = self.history(capped=False)
        with CatFile(history.repository.git) as reader:
            return list(read_attachments(reader, snapshot, partial(_unseal, history)))

    def delete(self, snapshot: Snapshot) -> None:
        """Drop a checkpoint: nobody reaches it any more."""
        said = self._said()
        self._say({**said, DELETED: [*(said.get(DELETED) or ()), snapshot.id]})
        drop_now(self.history(capped=False), [snapshot])

    def prune(self, snapshots: Sequence[Snapshot]) -> None:
        """Let checkpoints go that there is no room for in a list."""
        drop_soon(self.history(capped=False), snapshots)

    def forget(self) -> None:
        """Remove every checkpoint, and the place where they were."""
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
        meta = [(KIND, kind), (AFTER, self._standing(history))]
        if metadata:
            meta.append(
                (METADATA, json.dumps({str(key): value for key, value in metadata.items()}, default=str))
            )
        captured = history.capture(message, if_changed=if_changed, meta=meta, attached=attached)
        if captured.snapshot is not None:
            self._stand_on(captured.snapshot.id)
        return captured.snapshot

    def _patterns(self) -> tuple[str, ...]:
        # That library excludes `.git` so that its own is not a part of the workspace; a nested repository is one.
        patterns = self._config.exclude_patterns
        return tuple(pattern for pattern in patterns if not (self._usual and pattern == ".git"))

    def _too_large(self) -> tuple[str, ...]:
        # The usual limit is there because of what large files cost that library; here they are stored in pieces.
        limit = self._config.max_file_size
        return () if limit in (0, MAX_FILE_SIZE) or limit < 0 else tuple(_larger_than(self.root, limit))

    @property
    def _position_file(self) -> str:
        return os.path.join(self._keeping.place_of(self.root), POSITION)

    def _said(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {}
        return read_json(self._position_file, lambda said: {**said}, nothing)

    def _say(self, said: Mapping[str, Any]) -> None:
        write_json(self._position_file, dict(said))

    def _standing(self, history: EnvHistory) -> str:
        position = self._said().get(AT)
        return str(position) if position else next((one.id for one in history.log() if _kind(one)), "")

    def _stand_on(self, checkpoint: str) -> None:
        self._say({**self._said(), AT: checkpoint})


def metadata_of(snapshot: Snapshot) -> dict[str, Any]:
    """What the caller gave along with a checkpoint."""
    try:
        said = json.loads(dict(snapshot.meta).get(METADATA, "{}"))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _kind(snapshot: Snapshot) -> str | None:
    return dict(snapshot.meta).get(KIND)


def before_of(snapshot: Snapshot, every: Sequence[Snapshot]) -> Snapshot | None:
    """The checkpoint that the workspace stood on before this one; `every`: newest first."""
    after = dict(snapshot.meta).get(AFTER)
    if not after:
        return None
    named = next((one for one in every if one.id == after), None)
    # Where that one was let go, it is whichever is next.
    ids = [one.id for one in every]
    older = every[ids.index(snapshot.id) + 1 :] if snapshot.id in ids else ()
    return named or next(iter(older), None)


def _unseal(history: EnvHistory, name: EnvPath, sealed: bytes) -> bytes:
    return unseal(history.keys.to_open, name, b"attachment", sealed)


def _holds_something(git: Git, tree: str) -> bool:
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
        # Gone meanwhile, as things in a workspace that lives go.
        return 0
    return seen.st_size if stat.S_ISREG(seen.st_mode) else 0


# The conversation that belongs to a workspace: noted with each checkpoint, brought back to it by a restore.

ATTACHED = "conversation.json"
COUNT = "message_count"


class Conversation:
    """The messages of one conversation, wherever they are."""

    def __init__(self, held: Any, session_id: str | None = None) -> None:
        """A list of messages, an agent with a `chat_history`, or a store and the id of a session in it."""
        self._held = held
        self._session_id = session_id
        reads = callable(getattr(held, "get_chat_history", None)) and session_id is not None
        if not reads and not isinstance(self._list(), MutableSequence):
            raise TypeError(
                "a list of messages, an agent with a chat_history, or a store of sessions and an id is wanted"
            )
        self._is_store = reads

    def metadata(self) -> dict[str, int]:
        """What a checkpoint notes of it."""
        return {COUNT: len(self._messages())}

    def attached(self) -> list[tuple[str, bytes]]:
        """The messages themselves, to be kept sealed with a checkpoint."""
        return [(ATTACHED, _as_json(self._messages()).encode("utf-8", "surrogateescape"))]

    def plain(self) -> list[Any]:
        """The messages as they are given back."""
        return _as_kept(self._messages())

    def go_back(self, count: int, kept: Sequence[Any] | None) -> None:
        """Make it what it was at `count` messages; `kept` has those that were there then, where they are known."""
        here = list(self._messages())
        same = count if kept is None else _same(_as_kept(here), kept)
        then = [*here[:same], *(kept or ())[same:]]
        if len(then) == same < len(here):
            self._cut(same)
        elif len(then) > same:
            self._put(then)

    def _cut(self, count: int) -> None:
        revert: Callable[[str | None, int], object] | None = getattr(self._held, "revert_to_message", None)
        if self._is_store and revert is not None and count > 0:
            # The index is of the last message that stays.
            revert(self._session_id, count - 1)
        else:
            self._put(list(self._messages())[:count])

    def _put(self, messages: list[Any]) -> None:
        if not self._is_store:
            self._list()[:] = messages
        elif hasattr(self._held, "set_chat_history"):
            self._held.set_chat_history(self._session_id, messages)

    def _messages(self) -> Sequence[Any]:
        held: Sequence[Any] = (
            self._held.get_chat_history(self._session_id) if self._is_store else self._list()
        )
        return held

    def _list(self) -> Any:
        return getattr(self._held, "chat_history", self._held)


def _same(here: Sequence[Any], kept: Sequence[Any]) -> int:
    """So many messages at the beginning are the same; a conversation may have been rewritten since."""
    pairs = zip(here, kept, strict=False)
    return next(
        (number for number, (one, other) in enumerate(pairs) if one != other), min(len(here), len(kept))
    )


def _as_json(messages: Sequence[Any]) -> str:
    return json.dumps(list(messages), default=str, ensure_ascii=False)


def _as_kept(messages: Sequence[Any]) -> list[Any]:
    kept: list[Any] = json.loads(_as_json(messages))
    return kept


# What a service does, without its events and off its loop: checkpoints as the library's values.

STEP = re.compile(r"^\[step-(\d+)\]\s*")
HEAD = re.compile(r"HEAD(?:(\^+)|~(\d{1,6})|(~))?")
Counts = tuple[list[str], int, int]


class NothingChanged(Exception):
    """There is nothing to save."""


class WorkspaceCheckpoints:
    """One workspace; each call is whole before the next one begins."""

    def __init__(self, config: CheckpointConfig, book: CheckpointStore) -> None:
        self.conversation: Conversation | None = None
        self._config = config
        self._book = book
        self._counts: dict[str, Counts] = {}

    def begin(self) -> None:
        with self._book.lock:
            self._book.begin()

    def save(
        self, message: str, allow_empty: bool, metadata: Mapping[str, Any] | None, keep: str = ""
    ) -> tuple[Checkpoint, int]:
        """The checkpoint that was made, and how many were let go for it, `keep` in no case."""
        said: dict[str, Any] = {
            **(self.conversation.metadata() if self.conversation else {}),
            **(metadata or {}),
        }
        attached = self.conversation.attached() if self.conversation else []
        with self._book.lock:
            saved = self._book.save(message, allow_empty=allow_empty, metadata=said, attached=attached)
            if saved is None:
                raise NothingChanged
            every = self._book.checkpoints()
            return self._told([saved], every)[0], self._prune(every, keep)

    def go_back(
        self, words: str | Snapshot, unsaved: str
    ) -> tuple[tuple[Checkpoint, int] | None, Checkpoint]:
        """What was saved before, under this message, and the checkpoint gone back to; the conversation went along."""
        with self._book.lock:
            target = self.resolve(words)
            try:
                saved = self.save(unsaved, self._said_since(), None, target.id)
            except NothingChanged:
                saved = None
            except (EnvhistError, OSError) as error:
                raise EnvhistError(f"Pre-restore snapshot failed: {error}") from error
            self._book.restore(target)
            count = metadata_of(target).get(COUNT)
            if self.conversation is not None and isinstance(count, int):
                self.conversation.go_back(count, self._kept_messages(target))
            return saved, self._told([target], self._book.checkpoints())[0]

    def _said_since(self) -> bool:
        """Whether the conversation holds what no checkpoint does: to cut it would lose that."""
        if self.conversation is None:
            return False
        line = self._book.line()
        kept = self._kept_messages(line[0]) if line else None
        return self.conversation.plain() != (kept or [])

    def resolve(self, words: str | Snapshot) -> Snapshot:
        """The checkpoint that is meant; `SnapshotNotFound` where there is none."""
        if isinstance(words, Snapshot):
            return words
        with self._book.lock:
            if back := HEAD.fullmatch(words):
                # As git counts, along what the workspace stood on.
                steps = len(back[1]) if back[1] else int(back[2] or (back[3] and 1) or 0)
                found = next(iter(self._book.line()[steps:]), None)
            else:
                found = next((one for one in self._book.reachable() if one.id.startswith(words)), None)
        if found is None:
            raise SnapshotNotFound(words)
        return found

    def line(self) -> list[Snapshot]:
        with self._book.lock:
            return self._book.line()

    def listed(self, limit: int | None) -> list[Checkpoint]:
        with self._book.lock:
            every = self._book.checkpoints()
            return self._told(every[:limit] if limit is not None else every, every)

    def get(self, words: str) -> Checkpoint | None:
        with self._book.lock:
            every = self._book.checkpoints()
            found = [one for one in every if words and one.id.startswith(words)]
            return self._told(found[:1], every)[0] if found else None

    def delete(self, words: str) -> bool:
        """Let one go; whether there was one."""
        with self._book.lock:
            every = self._book.checkpoints()
            found = [one for one in every if words and one.id.startswith(words)]
            for one in found[:1]:
                self._book.delete(one)
            return bool(found)

    def forget(self) -> None:
        with self._book.lock:
            self._book.forget()

    def diff(self, from_id: str | None, to_id: str | None) -> CheckpointDiff:
        """From the checkpoint before the one that the workspace stands on, where none is said; to what is here now."""
        with self._book.lock:
            line = self._book.line()
            before = self.resolve(from_id) if from_id else line[min(1, len(line) - 1)]
            after = self.resolve(to_id) if to_id else None
            files, patch = compare_contents(self._book.history(), before, after or "now")
        root = os.path.abspath(self._config.workspace_dir)
        told = [
            FileDiff(
                file.path,
                os.path.join(root, file.path),
                file.status,
                file.additions,
                file.deletions,
                file.before,
                file.after,
            )
            for file in files
        ]
        short = after.id[:SHORT] if after is not None else None
        return CheckpointDiff(before.id[:SHORT], short, told, diff_content=patch)

    def _prune(self, every: Sequence[Snapshot], keep: str) -> int:
        limit = self._config.max_checkpoints
        begun = [one for one in every if dict(one.meta).get(KIND) == INITIAL]
        saved = [one for one in every if one not in begun]
        too_many = [one for one in saved[limit:] if one.id != keep] if limit > 0 else []
        if too_many:
            # What it began with goes along, and does not count, as with them.
            self._book.prune([*too_many, *(one for one in begun if one.id != keep)])
        return len(too_many)

    def _told(self, wanted: Sequence[Snapshot], every: Sequence[Snapshot]) -> list[Checkpoint]:
        return [_as_checkpoint(one, self._counted(one, every)) for one in wanted]

    def _counted(self, snapshot: Snapshot, every: Sequence[Snapshot]) -> Counts:
        known = self._counts.get(snapshot.id)
        if known is None:
            known = self._counts[snapshot.id] = self._count(snapshot, before_of(snapshot, every))
        return known

    def _count(self, snapshot: Snapshot, before: Snapshot | None) -> Counts:
        if before is None or dict(snapshot.meta).get(KIND) == INITIAL:
            return [], 0, 0
        git = self._book.history(capped=False).repository.git
        # To whoever saves for the first time, all of it is new.
        begun = dict(before.meta).get(KIND) == INITIAL
        files = changed_files(git, empty_tree(git, snapshot.tree) if begun else before.tree, snapshot.tree)
        paths = [file.path for file in files]
        return paths, sum(file.additions for file in files), sum(file.deletions for file in files)

    def _kept_messages(self, target: Snapshot) -> list[Any] | None:
        if not target.attachments:
            return None
        for name, data in self._book.attachments(target):
            if name.endswith(b"conversation.json"):
                kept = json.loads(data)
                return kept if isinstance(kept, list) else None
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
