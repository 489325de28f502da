"""The state of git around a restore: HEAD and submodules.

With `--head`, HEAD moves to the code commit of the snapshot, where `git checkout` would be allowed; no branch is ever
moved. `.git` files of submodules that point into another working tree are skipped, and missing commits of submodules
are fetched from there.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.errors import EnvhistError, Refused, in_words
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.git.running_git import MAX_LENGTH
from git_envhist.git.status import GitStatus
from git_envhist.git.submodules import common_dir_of, git_directory_of, is_own_submodule, submodule_of
from git_envhist.lazy import replace
from git_envhist.model import (
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    RestorePlan,
    Snapshot,
    StoredAs,
    shown_path,
)
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.restore.plan_steps import PlanRules

IN_PROGRESS = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}
REFS = ("CHERRY_PICK_HEAD", "REVERT_HEAD")
"""Names that are refs: with reftable there are no such files."""
MAILS = os.path.join("rebase-apply", "applying")
REASON = "git envrestore --head"


class HeadMove(NamedTuple):
    """The new position of HEAD; `branch` None: detached."""

    commit: str
    branch: str | None

    @classmethod
    def read(cls, encoded: str) -> HeadMove:
        """Decode a move written by `remembered`."""
        commit, _, branch = encoded.partition(" ")
        return cls(commit, branch or None)

    def __str__(self) -> str:
        if self.branch is not None:
            return f"HEAD is on {self.branch.removeprefix('refs/heads/')}, at {self.commit[:7]}"
        return f"HEAD is at {self.commit[:7]}, on no branch"


def plan_move(repository: Repository, snapshot: Snapshot, view: GitStatus, *, force: bool) -> HeadMove:
    """Return the move of HEAD; raise `Refused` if git would not allow it."""
    commit = snapshot.head
    if commit is None:
        raise Refused("the snapshot has no code commit", hint="run without --head")
    _refuse_in_progress(repository)
    if repository.git.ask("cat-file", "-e", f"{commit}^{{commit}}").status != 0:
        raise Refused(
            f"the code commit of the snapshot no longer exists: '{commit[:10]}'",
            hint="'git fetch' may get it; without --head the files can be restored",
        )
    if view.staged and not force:
        raise Refused(
            f"{len(view.staged)} staged changes would be lost from the index",
            hint="commit or unstage them; with --force only the safety snapshot has them",
        )
    return HeadMove(commit, snapshot.branch if _can_be_on(repository, snapshot.branch, commit) else None)


def encoded_move(move: HeadMove) -> str:
    """Encode a move for the journal."""
    return f"{move.commit} {move.branch or ''}"


def finish_move(repository: Repository, encoded: str) -> Iterator[str]:
    """Make a move of the journal; yield why it was not made, if it would lose something."""
    commit, branch = HeadMove.read(encoded)
    try:
        _refuse_in_progress(repository)
        # It may have been interrupted between index and HEAD.
        if not any(_index_is(repository, one) for one in ("HEAD", commit)):
            raise Refused("there are staged changes now", hint="run git commit or git stash, then try again")
        move_head(repository, HeadMove(commit, branch if _can_be_on(repository, branch, commit) else None))
    except (EnvhistError, OSError) as error:
        yield f"HEAD was not moved: {in_words(error)}"


def revert_move(repository: Repository, encoded: str, before: Snapshot) -> Iterator[str]:
    """Undo a move of the journal if it was made; yield why it was not undone, if that would lose something."""
    head = repository.git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}").out.decode().strip()
    branch = repository.git.ask("symbolic-ref", "--quiet", "HEAD").out.decode(errors="replace").strip()
    was = before.head and HeadMove(before.head, before.branch)
    if was and head == HeadMove.read(encoded).commit and was != HeadMove(head, branch or None):
        yield from finish_move(repository, encoded_move(was))


def _index_is(repository: Repository, commit: str) -> bool:
    return repository.git.ask("diff-index", "--cached", "--quiet", commit, "--").status == 0


def move_head(repository: Repository, move: HeadMove) -> None:
    """Set the index and HEAD; files are not changed."""
    git = repository.git
    git.run("read-tree", move.commit)
    if move.branch is not None:
        git.run("symbolic-ref", "-m", REASON, "HEAD", move.branch)
    else:
        git.run("update-ref", "--no-deref", "-m", REASON, "HEAD", move.commit)


def head_is_at(repository: Repository, snapshot: Snapshot) -> bool:
    """Return whether HEAD is where a move would put it."""
    if snapshot.head is None:
        return False
    git = repository.git
    head = git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}").out.decode().strip()
    if head != snapshot.head:
        return False
    branch = git.ask("symbolic-ref", "--quiet", "HEAD").out.decode(errors="surrogateescape").strip()
    wanted = snapshot.branch if _can_be_on(repository, snapshot.branch, head) else None
    return (branch or None) == wanted


def _refuse_in_progress(repository: Repository) -> None:
    git_dir = repository.git_dir
    for name, what in IN_PROGRESS.items():
        if os.path.lexists(os.path.join(git_dir, name)) or _is_ref_in_progress(repository, name):
            if os.path.lexists(os.path.join(git_dir, MAILS)):
                what = "git am"
            raise Refused(
                f"{what} is in progress",
                hint="finish or abort it first; without --head the files can be restored",
            )
    if os.path.lexists(os.path.join(git_dir, "index.lock")):
        raise Refused("the index is locked by another git process", hint="wait for it")


def _is_ref_in_progress(repository: Repository, name: str) -> bool:
    if name not in REFS or not os.path.isdir(os.path.join(repository.common_dir, "reftable")):
        return False
    return repository.git.ask("rev-parse", "--verify", "--quiet", name).status == 0


def _can_be_on(repository: Repository, branch: str | None, commit: str) -> bool:
    """Return whether a branch is still at a commit, and not checked out in another working tree."""
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


# `.git` files of submodules. Each working tree has its own git directories for its submodules: the file of another
# working tree would make git work on the other one, and a dangling file makes git fail everywhere.

NAME = b".git"
OF_OTHER_TREE = "it points to the submodule's git directory of another working tree"
DANGLING = "it does not point to the submodule's existing git directory"


class SkippedSubmodule(NamedTuple):
    """A `.git` file to skip."""

    why: str
    directory: bytes
    """The directory of the submodule."""
    place: bytes
    """The git directory that the file names."""


class SubmodulePointers(NamedTuple):
    """Checks the `.git` files of a snapshot against the git directories of this working tree."""

    git_dir: str
    bases: Mapping[bytes, bytes]
    contents: ObjectReader

    def skipped_files(self, pairs: Iterable[DirectoryPair]) -> dict[EnvPath, SkippedSubmodule]:
        """Return the files to skip, by displayed path."""
        found = {}
        for pair in pairs:
            entry = pair.after.entries.get(NAME) if pair.after is not None and pair.path else None
            skipped = None if entry is None else self._check(pair, entry)
            if entry is not None and skipped is not None:
                found[shown_path(pair.root, entry.path)] = skipped
        return found

    def _check(self, pair: DirectoryPair, entry: Entry) -> SkippedSubmodule | None:
        base = self.bases.get(pair.root)
        if base is None or entry.kind is not EntryKind.FILE or entry.stored is not StoredAs.PLAIN:
            return None
        directory = os.path.join(os.path.realpath(base), pair.path)
        named = git_directory_of(directory, self.contents.plain(entry))
        if named is None or is_own_submodule(named, self.git_dir):
            return None
        if submodule_of(named, common_dir_of(self.git_dir)) is not None:
            return SkippedSubmodule(OF_OTHER_TREE, directory, named)
        has_own = own_place(directory, self.git_dir) is not None
        return SkippedSubmodule(DANGLING, directory, named) if has_own and not os.path.exists(named) else None


def own_place(directory: bytes, git_dir: str) -> bytes | None:
    """Return the git directory of a submodule of this working tree; None if there is none."""
    now = git_directory_of(directory, _read(os.path.join(directory, NAME)))
    return now if now is not None and is_own_submodule(now, git_dir) and os.path.exists(now) else None


def skip_submodules(rules: PlanRules, skipped: Mapping[EnvPath, SkippedSubmodule]) -> PlanRules:
    """Return rules that also skip these files."""
    if not skipped:
        return rules

    def keep(path: EnvPath, directory: bool) -> str | None:
        why = rules.keep(path, directory)
        if why is None and (one := skipped.get(path)) is not None:
            return one.why
        return why

    return replace(rules, keep=keep)


def _read(place: bytes) -> bytes:
    try:
        # Do not block on a pipe of this name.
        with open(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(MAX_LENGTH)
    except OSError:
        return b""


# Commits that submodules made in another working tree. They exist only in its git directory, so a restore fetches them
# into this working tree's, below a ref of their own; HEAD, index and branches of the submodule do not change.

ADOPTED = "refs/adopted/"
"""The refs that keep fetched commits, each by its own id."""


class MissingSubmoduleCommit(NamedTuple):
    """The commit of a submodule in another working tree."""

    path: EnvPath
    """The submodule."""
    directory: bytes
    commit: str
    source: bytes
    own: bytes

    def __str__(self) -> str:
        words = ("git", "-C", os.fsdecode(self.directory), "fetch", os.fsdecode(self.source), "HEAD")
        return f"{self._message} there, which is missing here: {shlex.join(words)}"

    @property
    def fetched_message(self) -> str:
        """Return the message after fetching it."""
        words = ("git", "-C", os.fsdecode(self.directory), "reset", self.commit[:10])
        return f"{self._message} there; the commit was fetched. To check it out: {shlex.join(words)}"

    @property
    def _message(self) -> str:
        return f"the submodule '{os.fsdecode(self.path)}' is at {self.commit[:10]}"


def missing_commits(
    git: Git, plan: RestorePlan, skipped: Mapping[EnvPath, SkippedSubmodule]
) -> tuple[MissingSubmoduleCommit, ...]:
    """Return the missing commits of submodules in a plan."""
    others = [left.path for left in plan.skipped if left.why == OF_OTHER_TREE and left.path in skipped]
    return tuple(one for path in others for one in _found(git, path, skipped[path]))


def fetch_missing_commits(git: Git, unfetched: Iterable[MissingSubmoduleCommit]) -> Iterator[str]:
    """Fetch the commits; yield a message for each."""
    for one in unfetched:
        yield one.fetched_message if _fetch(git, one) else str(one)


def _fetch(git: Git, one: MissingSubmoduleCommit) -> bool:
    words = (
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-auto-maintenance",
        "--recurse-submodules=no",
    )
    try:
        # By HEAD, because older git servers do not send a commit by its id.
        fetched = git.ask(
            *("fetch", *words, "--", one.source, f"+HEAD:{ADOPTED}{one.commit}"),
            environment={b"GIT_DIR": one.own, b"GIT_ALLOW_PROTOCOL": b"file"},
        )
    except EnvhistError:
        return False
    return fetched.status == 0 and _commit(git, one.own, one.commit) is not None


def _found(git: Git, path: EnvPath, skipped: SkippedSubmodule) -> Iterator[MissingSubmoduleCommit]:
    own = own_place(skipped.directory, git.git_dir)
    source = _commit(git, skipped.place, "HEAD")
    if own is None or source is None or _commit(git, own, source) is not None:
        return
    yield MissingSubmoduleCommit(
        EnvPath(path.rpartition(b"/")[0]), skipped.directory, source, skipped.place, own
    )


def _commit(git: Git, place: bytes, revision: str) -> str | None:
    asked = git.try_run(
        *("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"),
        environment={b"GIT_DIR": place},
    )
    return asked.out.decode("ascii", "replace").strip() if asked.status == 0 else None
