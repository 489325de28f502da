"""The values of `praisonaiagents.checkpoints.types`, with the same names, fields, defaults and texts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from git_envhist.compat.storage import place_name

USER_NAME = "PraisonAI Checkpoints"
USER_EMAIL = "checkpoints@praison.ai"
MAX_FILE_SIZE = 2 * 1024 * 1024
EXCLUDED = (".git", ".praisonai", "__pycache__", "*.pyc", ".env", "node_modules", ".venv", "venv", "*.log")
SHORT = 8


class CheckpointEvent(str, Enum):  # noqa: UP042 - a member prints as theirs does
    """The events of a service."""

    INITIALIZED = "initialized"
    CHECKPOINT_CREATED = "checkpoint_created"
    CHECKPOINT_RESTORED = "checkpoint_restored"
    CHECKPOINTS_PRUNED = "checkpoints_pruned"
    ERROR = "error"


@dataclass
class CheckpointConfig:
    """The settings of the checkpoint service of one workspace."""

    workspace_dir: str
    storage_dir: str | None = None
    enabled: bool = True
    auto_checkpoint: bool = True
    max_checkpoints: int = 100
    user_name: str = field(default_factory=lambda: os.getenv("PRAISONAI_GIT_USER_NAME", USER_NAME))
    user_email: str = field(default_factory=lambda: os.getenv("PRAISONAI_GIT_USER_EMAIL", USER_EMAIL))
    max_file_size: int = MAX_FILE_SIZE
    exclude_patterns: list[str] = field(default_factory=lambda: list(EXCLUDED))

    def __post_init__(self) -> None:
        # Resolved once, so that a later chdir of the host program does not change them.
        self.workspace_dir = _absolute(self.workspace_dir)
        self.storage_dir = _absolute(self.storage_dir or default_storage())

    def get_checkpoint_dir(self) -> str:
        """Return the directory of the checkpoints of this workspace."""
        return os.path.join(self.storage_dir or "", place_name(os.path.realpath(self.workspace_dir)))


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.path.expanduser(path))


def default_storage() -> str:
    """Return the directory in which the original library stores its checkpoints on this machine."""
    configured = os.environ.get("PRAISONAI_HOME")
    if configured:
        return os.path.join(os.path.expanduser(configured), "checkpoints")
    home = Path.home()
    usual, earlier = home / ".praisonai", home / ".praison"
    xdg = os.environ.get("XDG_DATA_HOME")
    if usual.exists():
        return str(usual / "checkpoints")
    if earlier.exists():
        return str(earlier / "checkpoints")
    return str((Path(xdg) / "praisonai" if xdg else usual) / "checkpoints")


@dataclass
class Checkpoint:
    """A checkpoint of a workspace."""

    id: str
    short_id: str = ""
    message: str = ""
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    files_changed: list[str] = field(default_factory=list)
    """Paths that differ from the previous checkpoint."""
    insertions: int = 0
    deletions: int = 0
    step: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.short_id = self.short_id or self.id[:SHORT]

    @classmethod
    def from_git_commit(cls, commit_hash: str, message: str, timestamp: str | datetime) -> Checkpoint:
        """Create a checkpoint from a commit; the time may be text from git or a value."""
        at = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
        return cls(commit_hash, commit_hash[:SHORT], message, at)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "id": self.id,
            "short_id": self.short_id,
            "message": self.message,
            "timestamp": self.timestamp.isoformat(),
            "files_changed": list(self.files_changed),
            "insertions": self.insertions,
            "deletions": self.deletions,
            "step": self.step,
            "metadata": dict(self.metadata),
        }


@dataclass
class FileDiff:
    """The differences of one file."""

    path: str
    absolute_path: str
    status: str
    """`added`, `modified` or `deleted`."""
    additions: int = 0
    deletions: int = 0
    before_content: str | None = None
    after_content: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the contents."""
        return {
            "path": self.path,
            "absolute_path": self.absolute_path,
            "status": self.status,
            "additions": self.additions,
            "deletions": self.deletions,
        }


@dataclass(init=False)
class CheckpointDiff:
    """The differences between two checkpoints; the names in the original library's code and in its documentation both
    work.
    """

    from_checkpoint: str
    to_checkpoint: str | None
    """The second checkpoint, or None for the current workspace."""
    files: list[FileDiff]
    total_additions: int
    total_deletions: int
    diff_content: str

    def __init__(
        self,
        from_checkpoint: str = "",
        to_checkpoint: str | None = None,
        files: list[FileDiff] | None = None,
        total_additions: int = 0,
        total_deletions: int = 0,
        *,
        diff_content: str = "",
        from_id: str = "",
        to_id: str | None = None,
    ) -> None:
        self.from_checkpoint = from_checkpoint or from_id
        self.to_checkpoint = to_checkpoint if to_checkpoint is not None else to_id
        self.files = files if files is not None else []
        # The totals are computed; the caller cannot set them.
        self.total_additions = sum(file.additions for file in self.files)
        self.total_deletions = sum(file.deletions for file in self.files)
        self.diff_content = diff_content

    @property
    def from_id(self) -> str:
        return self.from_checkpoint

    @property
    def to_id(self) -> str | None:
        return self.to_checkpoint

    @property
    def added_files(self) -> list[str]:
        return self._with("added")

    @property
    def modified_files(self) -> list[str]:
        return self._with("modified")

    @property
    def deleted_files(self) -> list[str]:
        return self._with("deleted")

    def _with(self, status: str) -> list[str]:
        return [file.path for file in self.files if file.status == status]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the contents."""
        return {
            "from_checkpoint": self.from_checkpoint,
            "to_checkpoint": self.to_checkpoint,
            "files": [file.to_dict() for file in self.files],
            "total_additions": self.total_additions,
            "total_deletions": self.total_deletions,
        }


@dataclass
class CheckpointResult:
    """The result of a call."""

    success: bool
    checkpoint: Checkpoint | None = None
    error: str | None = None

    @classmethod
    def ok(cls, checkpoint: Checkpoint) -> CheckpointResult:
        return cls(success=True, checkpoint=checkpoint)

    @classmethod
    def fail(cls, error: str) -> CheckpointResult:
        return cls(success=False, error=error)

    def __str__(self) -> str:
        return self.checkpoint.id if self.checkpoint is not None else ""
