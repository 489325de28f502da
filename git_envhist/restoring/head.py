"""Moves HEAD to the code commit of a snapshot, where git itself would allow that checkout; no branch is ever moved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from git_envhist.errors import EnvhistError, Refused, in_words
from git_envhist.model import Snapshot
from git_envhist.store.gitview import GitStatus
from git_envhist.store.repository import Repository

UNDER_WAY = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}
REFS = ("CHERRY_PICK_HEAD", "REVERT_HEAD")
"""Which of these are refs: where refs are kept in tables, there are no such files."""
MAILS = os.path.join("rebase-apply", "applying")
REASON = "git envrestore --head"


class Move(NamedTuple):
    """Where HEAD goes; `branch` None: to the commit alone."""

    commit: str
    branch: str | None

    @classmethod
    def read(cls, told: str) -> Move:
        """What `remembered` made of one."""
        commit, _, branch = told.partition(" ")
        return cls(commit, branch or None)

    def __str__(self) -> str:
        if self.branch is not None:
            return f"HEAD is on {self.branch.removeprefix('refs/heads/')}, at {self.commit[:7]}"
        return f"HEAD is at {self.commit[:7]}, on no branch"


def plan_move(repository: Repository, snapshot: Snapshot, view: GitStatus, *, force: bool) -> Move:
    """Where HEAD has to go; `Refused` where git would not let it."""
    commit = snapshot.head
    if commit is None:
        raise Refused("no code commit was checked out at that moment", hint="leave --head out")
    _refuse_under_way(repository)
    if repository.git.ask("cat-file", "-e", f"{commit}^{{commit}}").status != 0:
        raise Refused(
            f"the code commit of that moment is gone: '{commit[:10]}'",
            hint="'git fetch' may bring it back; without --head the files are restored all the same",
        )
    if view.staged and not force:
        raise Refused(
            f"{len(view.staged)} staged changes would be lost from the index",
            hint="commit or unstage them; with --force only the saved snapshot has them",
        )
    return Move(commit, snapshot.branch if _can_be_on(repository, snapshot.branch, commit) else None)


def remembered(move: Move) -> str:
    """A move in a word, for the journal: a restore that is finished later has to make it, too."""
    return f"{move.commit} {move.branch or ''}"


def catch_up(repository: Repository, told: str) -> Iterator[str]:
    """Make a move that a journal remembers; why it was not made, where something would be lost by now."""
    commit, branch = Move.read(told)
    try:
        _refuse_under_way(repository)
        # Half of it may have been done: then the index is that of the commit already.
        if not any(_index_is(repository, one) for one in ("HEAD", commit)):
            raise Refused("there are staged changes by now", hint="git commit or git stash, then again")
        carry_out(repository, Move(commit, branch if _can_be_on(repository, branch, commit) else None))
    except (EnvhistError, OSError) as error:
        yield f"HEAD was not moved: {in_words(error)}"


def go_back(repository: Repository, told: str, before: Snapshot) -> Iterator[str]:
    """Take back a move that a journal remembers, where it was made; why not, where something would be lost by now."""
    head = repository.git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}").out.decode().strip()
    branch = repository.git.ask("symbolic-ref", "--quiet", "HEAD").out.decode(errors="replace").strip()
    was = before.head and Move(before.head, before.branch)
    if was and head == Move.read(told).commit and was != Move(head, branch or None):
        yield from catch_up(repository, remembered(was))


def _index_is(repository: Repository, commit: str) -> bool:
    return repository.git.ask("diff-index", "--cached", "--quiet", commit, "--").status == 0


def carry_out(repository: Repository, move: Move) -> None:
    """Set the index and HEAD; the files are not looked at."""
    git = repository.git
    git.run("read-tree", move.commit)
    if move.branch is not None:
        git.run("symbolic-ref", "-m", REASON, "HEAD", move.branch)
    else:
        git.run("update-ref", "--no-deref", "-m", REASON, "HEAD", move.commit)


def is_there(repository: Repository, snapshot: Snapshot) -> bool:
    """Whether HEAD stands where a move would bring it."""
    if snapshot.head is None:
        return False
    git = repository.git
    head = git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}").out.decode().strip()
    if head != snapshot.head:
        return False
    branch = git.ask("symbolic-ref", "--quiet", "HEAD").out.decode(errors="surrogateescape").strip()
    wanted = snapshot.branch if _can_be_on(repository, snapshot.branch, head) else None
    return (branch or None) == wanted


def _refuse_under_way(repository: Repository) -> None:
    git_dir = repository.git_dir
    for name, what in UNDER_WAY.items():
        if os.path.lexists(os.path.join(git_dir, name)) or _is_ref_under_way(repository, name):
            if os.path.lexists(os.path.join(git_dir, MAILS)):
                what = "the applying of mails (git am)"
            raise Refused(
                f"{what} is under way",
                hint="finish or abort it first; without --head the files can be restored",
            )
    if os.path.lexists(os.path.join(git_dir, "index.lock")):
        raise Refused("the index is locked: another git is at work", hint="wait until it is done")


def _is_ref_under_way(repository: Repository, name: str) -> bool:
    if name not in REFS or not os.path.isdir(os.path.join(repository.common_dir, "reftable")):
        return False
    return repository.git.ask("rev-parse", "--verify", "--quiet", name).status == 0


def _can_be_on(repository: Repository, branch: str | None, commit: str) -> bool:
    """Whether a branch still stands at a commit, and no other working tree has it checked out."""
    if branch is None or not branch.startswith("refs/heads/"):
        return False
    if repository.resolve_ref(branch) != commit:
        return False
    listed = repository.git.run("worktree", "list", "--porcelain", "-z").split(b"\0\0")
    own = os.path.realpath(os.fsencode(repository.root))
    return not any(
        b"branch " + os.fsencode(branch) in tree.split(b"\0") and _place_of(tree) != own for tree in listed
    )


def _place_of(tree: bytes) -> bytes:
    return os.path.realpath(tree.split(b"\0")[0].removeprefix(b"worktree "))
