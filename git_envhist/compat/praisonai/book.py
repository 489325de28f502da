"""The checkpoints of one workspace, as moments of a history that is kept for it alone.

What makes a moment a checkpoint stands on its card: `checkpoint` says which kind it is, `after` the one that the
workspace stood on before, `metadata` what the caller gave along. Which one the workspace stands on now is told by a
small file beside the repository; where that is lost, it is the newest.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from git_envhist.api import EnvHistory
from git_envhist.capture.seal import unseal
from git_envhist.compat.keeping import LibraryRules, LibraryStorage, literal_pattern, read_json, write_json
from git_envhist.compat.praisonai.types import EXCLUDED, MAX_FILE_SIZE, CheckpointConfig
from git_envhist.keeping.marking import drop_now, drop_soon, is_marked
from git_envhist.model import EnvPath, RestoreResult, Snapshot
from git_envhist.restoring.attachments import read_attachments
from git_envhist.restoring.wish import RestoreOptions
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile

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
        restored = self.history().restore(target, wish=RestoreOptions())
        self._stand_on(target.id)
        return restored

    def checkpoints(self) -> list[Snapshot]:
        """All of them, newest first."""
        return [one for one in self.history(capped=False).log() if _kind(one) and not is_marked(one)]

    def reachable(self) -> list[Snapshot]:
        """All that can be gone back to, newest first: those too that there was no room for, as long as there are."""
        history = self.history(capped=False)
        deleted = self._said().get(DELETED) or ()
        pruned = [item.snapshot for item in history.dropping.trash() if item.snapshot.id not in deleted]
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
