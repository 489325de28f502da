"""In the place of `chimera.env.git_env`: a git repository to work in; no checkpoint is a commit on its branch."""

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
    """A git repository: ids of checkpoints are hashes, and files that git ignores are kept, too."""

    excluded: ClassVar[frozenset[str]] = WORKSPACE_STATE_DIRS

    def setup(self) -> None:
        """Make the directory, and a repository with an empty first commit where there is none."""
        super().setup()
        if not (self.workdir / ".git").exists():
            for command in BEGIN:
                self.run_command(command)

    def _git(self, cmd: str) -> CommandResult:
        """Run git in the directory; chimera's `GitWorkflow` makes its branches and commits by it."""
        return self.run_command(f"git {cmd}")

    def _id_of(self, snapshot: Snapshot) -> str:
        return snapshot.id
