"""The service of `praisonaiagents.checkpoints.service`, with the same calls, texts and events."""

from __future__ import annotations

import inspect
import logging
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from git_envhist.compat.praisonai.store import (
    CheckpointStore,
    Conversation,
    NothingChanged,
    WorkspaceCheckpoints,
)
from git_envhist.compat.praisonai.types import (
    MAX_FILE_SIZE,
    USER_EMAIL,
    USER_NAME,
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
)
from git_envhist.guarded_work import in_thread
from git_envhist.model import Snapshot

logger = logging.getLogger(__name__)
STEP = re.compile(r"^\[step-(\d+)\]\s*")
NOT_INITIALIZED, NO_CHANGES = "Service not initialized", "No changes to checkpoint"
PRE_RESTORE = "[pre-restore] auto-save"
EMPTY_MESSAGE = "Aborting commit due to empty commit message."
SYSTEM = (
    *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run"),
    *("/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp"),
)
IN_HOME = ("~", "~/Desktop", "~/Documents", "~/Downloads")
PROTECTED_PATHS = [*map(os.path.expanduser, IN_HOME), *SYSTEM]
ANY_ERROR = Exception
"""A checkpoint must never end an agent's turn: errors are returned in the result, as in the original library."""
Handler = Callable[[Any], Any]
T = TypeVar("T")


class CheckpointService:
    """Saves and restores the state of a workspace."""

    def __init__(
        self,
        workspace_dir: str,
        storage_dir: str | None = None,
        enabled: bool = True,
        auto_checkpoint: bool = True,
        max_checkpoints: int = 100,
        user_name: str = USER_NAME,
        user_email: str = USER_EMAIL,
        max_file_size: int = MAX_FILE_SIZE,
        exclude_patterns: list[str] | None = None,
    ) -> None:
        """`exclude_patterns` None is the default list, an empty list excludes nothing."""
        self.config = CheckpointConfig(
            workspace_dir=os.fspath(workspace_dir),
            storage_dir=os.fspath(storage_dir) if storage_dir else None,
            enabled=enabled,
            auto_checkpoint=auto_checkpoint,
            max_checkpoints=max_checkpoints,
            user_name=user_name,
            user_email=user_email,
            max_file_size=max_file_size,
            **({} if exclude_patterns is None else {"exclude_patterns": list(exclude_patterns)}),
        )
        self._initialized = False
        self._handlers: dict[CheckpointEvent, list[Handler]] = {event: [] for event in CheckpointEvent}
        self._keeper = WorkspaceCheckpoints(
            self.config, CheckpointStore(self.config, usual=exclude_patterns is None)
        )

    @property
    def workspace_dir(self) -> str:
        return self.config.workspace_dir

    @property
    def checkpoint_dir(self) -> str:
        return self.config.get_checkpoint_dir()

    @property
    def git_dir(self) -> str:
        return os.path.join(self.checkpoint_dir, ".git")

    @property
    def is_initialized(self) -> bool:
        return self._initialized

    def on(self, event: CheckpointEvent, handler: Handler) -> None:
        """Call a function for each event of a kind; exceptions from it are logged."""
        self._handlers[CheckpointEvent(event)].append(handler)

    def bind(self, conversation: object, session_id: str | None = None) -> None:
        """Save a conversation with each checkpoint, and cut it back to the same point by a restore.

        It is a list of messages, an agent with a `chat_history`, or a store of sessions with a session id.
        """
        self._keeper.conversation = Conversation(conversation, session_id)

    async def initialize(self) -> bool:
        """Create the storage for the checkpoints of the workspace; return False if that is not possible."""
        workspace = self.config.workspace_dir
        if not self.config.enabled:
            return False
        if is_protected(workspace):
            logger.warning("no checkpoints of '%s': it is not a project's directory", workspace)
            return False
        if not os.path.isdir(workspace):
            logger.error("no checkpoints of '%s': there is no such directory", workspace)
            return False
        try:
            await in_thread(self._keeper.begin)
        except ANY_ERROR as error:
            logger.error("no checkpoints of '%s': %s", workspace, error)
            return False
        self._initialized = True
        await self._emit(CheckpointEvent.INITIALIZED, {"workspace": workspace})
        return True

    async def save(
        self,
        message: str,
        allow_empty: bool = False,
        step: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointResult:
        """Save the workspace; `step` can be passed to `restore(step=…)`."""
        if not self._initialized:
            return CheckpointResult.fail(NOT_INITIALIZED)
        if step is not None and not (isinstance(step, int) and step >= 0):
            return CheckpointResult.fail("step must be a non-negative integer")
        if step is not None:
            message = f"[step-{step}] {STEP.sub('', str(message))}"
        if not isinstance(message, str) or not message.strip():
            return await self._failed(EMPTY_MESSAGE)
        return await self._save(message, allow_empty, metadata)

    async def restore(
        self, checkpoint_id: str | Checkpoint | CheckpointResult | None = None, step: int | None = None
    ) -> CheckpointResult:
        """Restore the workspace and the bound conversation; unsaved changes are saved first."""
        if not self._initialized:
            return CheckpointResult.fail(NOT_INITIALIZED)
        if checkpoint_id is not None and step is not None:
            return CheckpointResult.fail("Provide either checkpoint_id or step, not both")
        if step is not None:
            found = await self.get_checkpoint_by_step(step)
            if found is None:
                return CheckpointResult.fail(f"No checkpoint found for step {step}")
            checkpoint_id = found
        words = checkpoint_id.id if isinstance(checkpoint_id, Checkpoint) else str(checkpoint_id or "")
        if not words:
            return CheckpointResult.fail("No checkpoint id or step provided")
        return await self._restore(words)

    async def rewind(self, steps: int = 1) -> CheckpointResult:
        """Restore the checkpoint this many steps before the current one."""
        if not self._initialized:
            return CheckpointResult.fail(NOT_INITIALIZED)
        if steps < 1:
            return CheckpointResult.fail("steps must be >= 1")
        try:
            line = await in_thread(self._keeper.line)
        except ANY_ERROR as error:
            return await self._failed(str(error))
        if steps >= len(line):
            return CheckpointResult.fail(
                f"Cannot rewind {steps} step(s): only {len(line)} checkpoint(s) available"
            )
        return await self._restore(line[steps])

    async def diff(self, from_id: Any = None, to_id: Any = None) -> CheckpointDiff:
        """Compare two checkpoints; by default the previous one with the current workspace."""
        nothing = CheckpointDiff(from_checkpoint="", to_checkpoint="", files=[])
        if not self._initialized:
            return nothing
        words = [None if one is None else str(getattr(one, "id", one)) for one in (from_id, to_id)]
        try:
            return await in_thread(self._keeper.diff, *words)
        except ANY_ERROR as error:
            logger.error("no comparison: %s", error)
            return nothing

    async def list_checkpoints(self, limit: int = 50) -> list[Checkpoint]:
        """Return the checkpoints, newest first."""
        return await self._ask([], self._keeper.listed, limit)

    async def list(self, limit: int = 50) -> list[Checkpoint]:
        """Return the checkpoints, newest first."""
        return await self.list_checkpoints(limit)

    async def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint whose id has this prefix."""
        return await self._ask(None, self._keeper.get, str(checkpoint_id))

    async def get(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint whose id has this prefix."""
        return await self.get_checkpoint(checkpoint_id)

    async def get_checkpoint_by_step(self, step: int) -> Checkpoint | None:
        """Return the newest checkpoint of a step."""
        nothing: Sequence[Checkpoint] = ()
        every = await self._ask(nothing, self._keeper.listed, None)
        return next((one for one in every if one.step == step), None)

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete one checkpoint; return whether it existed."""
        return await self._ask(False, self._keeper.delete, str(getattr(checkpoint_id, "id", checkpoint_id)))

    async def cleanup(self) -> None:
        """Close the workspace; `initialize` finds its checkpoints again."""
        self._initialized = False

    async def delete_all(self) -> bool:
        """Delete every checkpoint of the workspace from disk."""
        self._initialized = False
        try:
            await in_thread(self._keeper.forget)
        except ANY_ERROR as error:
            logger.error("the checkpoints could not be removed: %s", error)
            return False
        return True

    async def _save(
        self, message: str, allow_empty: bool, metadata: Mapping[str, Any] | None = None
    ) -> CheckpointResult:
        try:
            saved, pruned = await in_thread(self._keeper.save, message, allow_empty, metadata)
        except NothingChanged:
            return CheckpointResult.fail(NO_CHANGES)
        except ANY_ERROR as error:
            return await self._failed(str(error))
        await self._report_saved(saved, pruned)
        return CheckpointResult.ok(saved)

    async def _restore(self, words: str | Snapshot) -> CheckpointResult:
        try:
            unsaved, restored = await in_thread(self._keeper.restore, words, PRE_RESTORE)
        except ANY_ERROR as error:
            return await self._failed(str(error))
        if unsaved is not None:
            await self._report_saved(*unsaved)
        await self._emit(CheckpointEvent.CHECKPOINT_RESTORED, restored)
        return CheckpointResult.ok(restored)

    async def _report_saved(self, saved: Checkpoint, pruned: int) -> None:
        if pruned:
            details = {"action": "pruned", "removed_count": pruned}
            await self._emit(CheckpointEvent.CHECKPOINTS_PRUNED, details)
        await self._emit(CheckpointEvent.CHECKPOINT_CREATED, saved)

    async def _failed(self, why: str) -> CheckpointResult:
        await self._emit(CheckpointEvent.ERROR, {"error": why})
        return CheckpointResult.fail(why)

    async def _ask(self, otherwise: T, question: Callable[..., T], *words: object) -> T:
        if not self._initialized:
            return otherwise
        try:
            return await in_thread(question, *words)
        except ANY_ERROR as error:
            logger.error("the checkpoints cannot be read: %s", error)
            return otherwise

    async def _emit(self, event: CheckpointEvent, data: Any) -> None:
        for handler in self._handlers[event]:
            try:
                returned = handler(data)
                if inspect.isawaitable(returned):
                    await returned
            except Exception as error:  # handlers may raise any exception
                logger.warning("a handler of '%s' failed: %s", event.value, error)


def is_protected(workspace: str) -> bool:
    """Return whether a directory is a home directory, a system directory or a temporary directory."""
    real = os.path.realpath(workspace)
    places = (*map(os.path.expanduser, IN_HOME), *SYSTEM, tempfile.gettempdir(), *PROTECTED_PATHS)
    return real in {os.path.realpath(place) for place in places}
