"""The interface of an integration: plan an installation, plan its removal, list the installed parts.

An integration is git itself or one coding agent. Plans contain edits as values; `integrations.install` applies them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Protocol

from git_envhist.config import config_home, data_home
from git_envhist.consent import TrustedList, trusted_list
from git_envhist.discovery import own_data
from git_envhist.errors import EnvhistError
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass
from git_envhist.model.integrations import FileEdit, InstalledPart


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """The target of an installation: the repository of one working tree, or everything of this user."""

    repository: Repository | None
    """None if only the user's own configuration is the target."""
    environ: Mapping[str, str]
    program: str
    """The absolute path of `git-envhist`, as the calling installation has it."""
    everywhere: bool = False
    """Install for every repository of this user."""
    worktrees: bool = False
    """Add the hooks with which an agent makes and removes its worktrees, if it has such hooks."""
    force: bool = False
    """Install even where a guard would refuse; each guard describes its reason."""

    @property
    def home(self) -> str:
        return self.environ.get("HOME") or os.path.expanduser("~")

    @property
    def config_home(self) -> str:
        return config_home(self.environ)

    @property
    def state(self) -> str:
        """The directory with the record of installed files for this target."""
        if self.repository is None or self.everywhere:
            return os.path.join(data_home(self.environ), "git-envhist")
        return self.repository.common_state

    @property
    def own_data(self) -> str:
        """Our directory in the user's data: agents call files there, outside of every repository."""
        return own_data(self.environ)

    @property
    def trusted(self) -> TrustedList:
        return trusted_list(self.environ)

    @property
    def named(self) -> str | None:
        """The repository as the user's private list names it; None for every repository."""
        return (
            None
            if self.repository is None or self.everywhere
            else os.path.realpath(self.repository.common_dir)
        )


PROGRAM = "git-envhist"


def installed_program(environ: Mapping[str, str]) -> str:
    """Return the absolute path of `git-envhist` of this installation, or of the one on the PATH."""
    neighbour = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), PROGRAM)
    found = neighbour if os.access(neighbour, os.X_OK) else shutil.which(PROGRAM, path=environ.get("PATH"))
    if found is None:
        raise EnvhistError(f"'{PROGRAM}' is neither in the directory of '{sys.executable}' nor on the PATH")
    return os.path.abspath(found)


NOT_NAMED = "no person enabled hooks for this repository: git envlog install, or git envlog capture"


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """The edits of one installation or removal."""

    edits: tuple[FileEdit, ...] = ()
    remarks: tuple[str, ...] = ()
    """Notes for the user: facts to know, and steps to do in addition."""
    own: tuple[FileEdit, ...] = ()
    """Changes of our own files.

    Several repositories may share them, so removal does not restore their earlier content.
    """


class Integration(Protocol):
    """An integration: git itself, or one coding agent."""

    @property
    def name(self) -> str:
        """The name of the agent in `--agent`, or `git` for git itself."""

    def plan_install(self, target: InstallTarget) -> InstallPlan:
        """Return the edits that install it; none if everything is installed."""

    def plan_uninstall(self, target: InstallTarget) -> InstallPlan:
        """Return the edits that remove everything that was installed."""

    def parts(self, target: InstallTarget) -> tuple[InstalledPart, ...]:
        """Return the installed parts; empty if nothing is or was installed."""
