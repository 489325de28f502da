"""What a kind of integration is: it plans edits for a place, plans how they are taken away, tells what is active."""

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
from git_envhist.model.work import FileEdit, InstalledPart


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """Where something is installed: in one working tree's repository, or for everything of this user."""

    repository: Repository | None
    """None where nothing but the user's own configuration is meant."""
    environ: Mapping[str, str]
    program: str
    """`git-envhist` by its absolute path, as the one that installs is installed."""
    everywhere: bool = False
    """For every repository of this user."""
    force: bool = False
    """Also where a guard would refuse; each tells which."""

    @property
    def home(self) -> str:
        return self.environ.get("HOME") or os.path.expanduser("~")

    @property
    def config_home(self) -> str:
        return config_home(self.environ)

    @property
    def state(self) -> str:
        """The directory of ours where what is installed here is remembered."""
        if self.repository is None or self.everywhere:
            return os.path.join(data_home(self.environ), "git-envhist")
        return self.repository.common_state

    @property
    def own_data(self) -> str:
        """The directory of ours in the user's data: what agents call is there, outside of every repository."""
        return own_data(self.environ)

    @property
    def trusted(self) -> TrustedList:
        return trusted_list(self.environ)

    @property
    def named(self) -> str | None:
        """The repository as the user's private list has it; None: every repository."""
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


NOT_NAMED = "no person named this repository to its hooks: git envlog install, or git envlog capture"


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What installing or taking away comes to."""

    edits: tuple[FileEdit, ...] = ()
    remarks: tuple[str, ...] = ()
    """What the user has to know or do beside."""
    own: tuple[FileEdit, ...] = ()
    """Changes of our own files, which several repositories may share: what was there before does not come back."""


class Integration(Protocol):
    """A leaf: git itself, or one coding agent."""

    @property
    def name(self) -> str:
        """What `--agent` calls it; `git` for git itself."""

    def plan_install(self, place: InstallTarget) -> InstallPlan:
        """What has to change so that it calls us; nothing where all is in place."""

    def plan_uninstall(self, place: InstallTarget) -> InstallPlan:
        """What has to change so that nothing of ours is left."""

    def parts(self, place: InstallTarget) -> tuple[InstalledPart, ...]:
        """What of ours is there; empty where nothing is and nothing was."""
