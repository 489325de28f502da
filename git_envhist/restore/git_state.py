"""Moves HEAD to the code commit of a snapshot, where git itself would allow that checkout; no branch is ever moved."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.errors import EnvhistError, Refused, in_words
from git_envhist.git.process import Git
from git_envhist.git.refs import MAX_LENGTH, common_dir_of, git_directory_of, is_own, module_of
from git_envhist.git.repository import Repository
from git_envhist.git.status import GitStatus
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
from git_envhist.objects.reader import ObjectReader
from git_envhist.restore.plan import PlanRules

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


# The `.git` files of submodules that a restore leaves alone.
#
# Each working tree of a repository has git directories of its own for its submodules. What another one's moment says of
# them would make git work over there, and what leads nowhere makes it fail in the whole working tree.

NAME = b".git"
OF_ANOTHER = "it leads to the git directory that this submodule has in another working tree"
LEADS_ASTRAY = "the git directory of this submodule is here, and it would not lead there"


class SkippedSubmodule(NamedTuple):
    """One that is not to come."""

    why: str
    directory: bytes
    """Where it would stand."""
    place: bytes
    """The git directory that it names."""


class SubmodulePointers(NamedTuple):
    """Judges what a moment brings against where the git directories of this working tree are."""

    git_dir: str
    bases: Mapping[bytes, bytes]
    contents: ObjectReader

    def left_alone(self, pairs: Iterable[DirectoryPair]) -> dict[EnvPath, SkippedSubmodule]:
        """Each one that is not to come; the paths as people see them."""
        found = {}
        for pair in pairs:
            entry = pair.after.entries.get(NAME) if pair.after is not None and pair.path else None
            spared = None if entry is None else self._judge(pair, entry)
            if entry is not None and spared is not None:
                found[shown_path(pair.root, entry.path)] = spared
        return found

    def _judge(self, pair: DirectoryPair, entry: Entry) -> SkippedSubmodule | None:
        base = self.bases.get(pair.root)
        if base is None or entry.kind is not EntryKind.FILE or entry.stored is not StoredAs.PLAIN:
            return None
        directory = os.path.join(os.path.realpath(base), pair.path)
        then = git_directory_of(directory, self.contents.plain(entry))
        if then is None or is_own(then, self.git_dir):
            return None
        if module_of(then, common_dir_of(self.git_dir)) is not None:
            return SkippedSubmodule(OF_ANOTHER, directory, then)
        leads = own_place(directory, self.git_dir) is not None
        return SkippedSubmodule(LEADS_ASTRAY, directory, then) if leads and not os.path.exists(then) else None


def own_place(directory: bytes, git_dir: str) -> bytes | None:
    """The git directory of a submodule of this working tree, where its `.git` file leads to one now."""
    now = git_directory_of(directory, _read(os.path.join(directory, NAME)))
    return now if now is not None and is_own(now, git_dir) and os.path.exists(now) else None


def skip_submodules(rules: PlanRules, spared: Mapping[EnvPath, SkippedSubmodule]) -> PlanRules:
    """Rules, and what else stays as it is."""
    if not spared:
        return rules

    def keep(path: EnvPath, directory: bool) -> str | None:
        why = rules.keep(path, directory)
        if why is None and (one := spared.get(path)) is not None:
            return one.why
        return why

    return replace(rules, keep=keep)


def _read(place: bytes) -> bytes:
    try:
        # A pipe that bears the name must not hold us up.
        with open(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(MAX_LENGTH)
    except OSError:
        return b""


# The commits of submodules that a moment of another working tree stands on, and that were made there and are not here.
#
# The files come with the moment. What a submodule committed lies in its git directory over there, and is gone with that
# working tree: so it comes along, into the git directory that the submodule has here, below a ref of its own. HEAD, the
# index and the branches of the submodule stay as they are.

ADOPTED = "refs/adopted/"
"""Below it a commit that came so is kept by its own name."""


class MissingSubmoduleCommit(NamedTuple):
    """The commit that a submodule stands at in another working tree."""

    path: EnvPath
    """The submodule."""
    directory: bytes
    commit: str
    there: bytes
    own: bytes

    def __str__(self) -> str:
        words = ("git", "-C", os.fsdecode(self.directory), "fetch", os.fsdecode(self.there), "HEAD")
        return f"{self._told} there, a commit that is not here: {shlex.join(words)}"

    @property
    def brought(self) -> str:
        """What is said of it once it is here."""
        words = ("git", "-C", os.fsdecode(self.directory), "reset", self.commit[:10])
        return f"{self._told} there, a commit that came along; to stand there, too: {shlex.join(words)}"

    @property
    def _told(self) -> str:
        return f"the submodule '{os.fsdecode(self.path)}' is at {self.commit[:10]}"


def missing_commits(
    git: Git, plan: RestorePlan, spared: Mapping[EnvPath, SkippedSubmodule]
) -> tuple[MissingSubmoduleCommit, ...]:
    """Those of the submodules that a plan concerns."""
    others = [left.path for left in plan.left_alone if left.why == OF_ANOTHER and left.path in spared]
    return tuple(one for path in others for one in _found(git, path, spared[path]))


def fetch_missing_commits(git: Git, unfetched: Iterable[MissingSubmoduleCommit]) -> Iterator[str]:
    """Fetch them; what came of each."""
    for one in unfetched:
        yield one.brought if _brought(git, one) else str(one)


def _brought(git: Git, one: MissingSubmoduleCommit) -> bool:
    words = (
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-auto-maintenance",
        "--recurse-submodules=no",
    )
    try:
        # Not by the commit's name: an older git hands out what has a name alone.
        fetched = git.ask(
            *("fetch", *words, "--", one.there, f"+HEAD:{ADOPTED}{one.commit}"),
            environment={b"GIT_DIR": one.own, b"GIT_ALLOW_PROTOCOL": b"file"},
        )
    except EnvhistError:
        return False
    return fetched.status == 0 and _commit(git, one.own, one.commit) is not None


def _found(git: Git, path: EnvPath, spared: SkippedSubmodule) -> Iterator[MissingSubmoduleCommit]:
    own = own_place(spared.directory, git.git_dir)
    there = _commit(git, spared.place, "HEAD")
    if own is None or there is None or _commit(git, own, there) is not None:
        return
    yield MissingSubmoduleCommit(
        EnvPath(path.rpartition(b"/")[0]), spared.directory, there, spared.place, own
    )


def _commit(git: Git, place: bytes, revision: str) -> str | None:
    asked = git.try_run(
        *("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"),
        environment={b"GIT_DIR": place},
    )
    return asked.out.decode("ascii", "replace").strip() if asked.status == 0 else None
