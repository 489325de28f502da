"""Replacement for `chimera.env.git_env`: work in a git repository; checkpoints are not commits on its branch."""

from __future__ import annotations

from typing import ClassVar

from git_envhist.compat.chimera.env.local import WORKSPACE_STATE_DIRS, LocalEnvironment
from git_envhist.compat.chimera.storage import CommandResult
from git_envhist.model import Snapshot

BEGIN = (
    "git init",
    "git config user.email chimera@local",
    "git config user.name Chimera",
    "git commit --allow-empty -m initial",
)


class GitEnvironment(LocalEnvironment):
    """A git repository: checkpoint ids are hashes, and ignored files are captured, too."""

    excluded: ClassVar[frozenset[str]] = WORKSPACE_STATE_DIRS

    def setup(self) -> None:
        """Create the directory, and a repository with an empty first commit if there is none."""
        super().setup()
        if not (self.workdir / ".git").exists():
            for command in BEGIN:
                self.run_command(command)

    def _git(self, cmd: str) -> CommandResult:
        """Run git in the directory; chimera's `GitWorkflow` uses it for branches and commits."""
        return self.run_command(f"git {cmd}")

    def _id_of(self, snapshot: Snapshot) -> str:
        return snapshot.id
