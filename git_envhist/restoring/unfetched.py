"""The commits of submodules that a moment of another working tree stands on, and that were made there and are not here.

The files come with the moment. What a submodule committed lies in its git directory over there, and is gone with that
working tree: so it comes along, into the git directory that the submodule has here, below a ref of its own. HEAD, the
index and the branches of the submodule stay as they are.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.errors import EnvhistError
from git_envhist.model import EnvPath, RestorePlan
from git_envhist.restoring.pointers import OF_ANOTHER, SkippedSubmodule, own_place
from git_envhist.store.git import Git

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
