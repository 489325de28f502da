"""What a service does, without its events and off its loop: checkpoints as the library's values."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from git_envhist.compat.differing import changed_files, compare_contents
from git_envhist.compat.praisonai.book import INITIAL, KIND, CheckpointStore, before_of, metadata_of
from git_envhist.compat.praisonai.conversation import COUNT, Conversation
from git_envhist.compat.praisonai.types import SHORT, Checkpoint, CheckpointConfig, CheckpointDiff, FileDiff
from git_envhist.errors import EnvhistError, SnapshotNotFound
from git_envhist.model import Snapshot
from git_envhist.store.rows import empty_tree

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
