"""Where a fork stands: a linked worktree of git's, or a directory that shares the repository of a plain one's history.

What was made here is taken away again where the fork does not come to its end, and nothing else is.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from git_envhist.capturing.timelines import mark_fork, slug
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.model import Snapshot
from git_envhist.restore.hands import DiskCalls
from git_envhist.restore.slots import remove_tree
from git_envhist.store.git import Git, GitResult, clean_environment
from git_envhist.store.homes import DirectoryRegistry, RegisteredDirectory
from git_envhist.store.locks import state_directory
from git_envhist.store.plain import open_plain
from git_envhist.store.repository import Repository
from git_envhist.store.sameness import identify
from git_envhist.system import DIRECTORY

BRANCHES = "refs/heads/"
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class ForkDirectory(Protocol):
    """A place that was made for a fork."""

    @property
    def repository(self) -> Repository: ...
    @property
    def branch(self) -> str | None: ...
    @property
    def orphan(self) -> bool: ...
    def take_away(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Worktree:
    """A linked worktree."""

    repository: Repository
    git: Git
    """That of the environment the fork was made of."""
    branch: str | None
    """One that was made for it."""
    orphan: bool

    def take_away(self) -> None:
        """Remove it, and the branch that was made with it."""
        root = self.repository.root
        clear(root)
        self.git.try_run("worktree", "remove", "--force", "--force", root)
        if self.branch is not None and not self.orphan:
            self.git.try_run("update-ref", "-d", BRANCHES + self.branch)


@dataclass(frozen=True, slots=True)
class PlainForkDirectory:
    """A directory of its own that has no git, with its history in the repository of the other's."""

    repository: Repository
    record: str
    branch: None = None
    orphan: bool = False

    def take_away(self) -> None:
        """Remove it, and the record of it."""
        clear(self.repository.root)
        with suppress(OSError):
            os.unlink(self.record)
        shutil.rmtree(self.repository.git_dir, ignore_errors=True)


def make_worktree(source: Repository, snapshot: Snapshot, root: str, branch: str | None) -> Worktree:
    """A linked worktree at the code commit of a moment, without a file in it; its index is that commit's."""
    git = source.git
    if branch is not None:
        _check_branch(git, branch)
    commit = _commit(git, snapshot.head)
    orphan = commit is None
    # git 2.42 can make an orphan itself. Whatever commit an older one begins at, HEAD is set at once.
    at = commit or snapshot.commit
    made = ["-b", branch] if branch is not None and not orphan else ["--detach"]
    done = git.try_run("worktree", "add", "--quiet", "--no-checkout", *made, root, at)
    if done.status != 0:
        raise _cannot_make(done, root)
    repository = Repository.open(root, clean_environment())
    branch = branch or (_free_branch(git, root) if orphan else None)
    ground = Worktree(repository, git, branch, orphan)
    try:
        if orphan:
            repository.git.run("symbolic-ref", "HEAD", f"{BRANCHES}{branch}")
        else:
            repository.git.run("read-tree", at)
        mark_fork(repository)
    except BaseException:
        ground.take_away()
        raise
    return ground


def make_beside(source: Repository, homes: DirectoryRegistry, root: str) -> PlainForkDirectory:
    """A directory that has a timeline of its own in the repository of a plain directory's history."""
    os.makedirs(root, exist_ok=True)
    name = f"{slug(os.path.basename(root))}-{os.urandom(3).hex()}"
    home = RegisteredDirectory(name, root, source.common_dir, identify(root), fork=True)
    ground = PlainForkDirectory(open_plain(home, root), os.path.join(homes.directory, name))
    try:
        state_directory(ground.repository.state)
        mark_fork(ground.repository)
        homes.write(home)
    except BaseException:
        ground.take_away()
        raise
    return ground


def clear(root: str) -> None:
    """Remove a directory and all in it, also what is closed to its owner."""
    above, name = os.path.split(root)
    with suppress(OSError):
        descriptor = os.open(above, DIRECTORY)
        try:
            remove_tree(DiskCalls(), descriptor, os.fsencode(name))
        finally:
            os.close(descriptor)


def _commit(git: Git, head: str | None) -> str | None:
    """The code commit of a moment, where it is still there."""
    if head is None or HASH.fullmatch(head) is None:
        return None
    return head if git.try_run("cat-file", "-e", head + "^{tree}").status == 0 else None


def _check_branch(git: Git, branch: str) -> None:
    if git.try_run("check-ref-format", "--branch", branch).status != 0 or branch.startswith("@{"):
        raise UsageError(f"not a name for a branch: '{branch}'")
    if _is_branch(git, branch):
        raise Refused(f"there is a branch of that name already: '{branch}'", hint="name another one")


def _free_branch(git: Git, root: str) -> str:
    name = slug(os.path.basename(root))
    names = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    return next(one for one in names if not _is_branch(git, one))


def _is_branch(git: Git, branch: str) -> bool:
    return git.try_run("rev-parse", "--verify", "--quiet", BRANCHES + branch).status == 0


def _cannot_make(done: GitResult, root: str) -> EnvhistError:
    return EnvhistError(
        f"git makes no worktree at '{root}': {done.complaint.splitlines()[-1]}",
        hint="'git worktree list' shows those there are, 'git worktree prune' forgets those that are gone",
    )
