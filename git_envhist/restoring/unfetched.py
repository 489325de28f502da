"""The commits of submodules that a moment of another working tree stands on, and that were made there and are not here.

The files come with the moment. What a submodule committed lies in its git directory over there, and a restore
writes to no repository: it says how git would fetch it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping

from git_envhist.model import EnvPath, Plan
from git_envhist.restoring.pointers import OF_ANOTHER, Spared, own_place
from git_envhist.store.git import Git


def not_here(git: Git, plan: Plan, spared: Mapping[EnvPath, Spared]) -> tuple[str, ...]:
    """Warnings, each with the command that brings the commits of one submodule."""
    others = [left.path for left in plan.left_alone if left.why == OF_ANOTHER and left.path in spared]
    return tuple(word for path in others for word in _told(git, path, spared[path]))


def _told(git: Git, path: EnvPath, spared: Spared) -> Iterator[str]:
    own = own_place(spared.directory, git.git_dir)
    there = _commit(git, spared.place, "HEAD")
    if own is None or there is None or _commit(git, own, there) is not None:
        return
    name = os.fsdecode(path.rpartition(b"/")[0])
    words = ("git", "-C", os.fsdecode(spared.directory), "fetch", os.fsdecode(spared.place), "HEAD")
    yield f"the submodule '{name}' is at {there[:10]} there, a commit that is not here: {shlex.join(words)}"


def _commit(git: Git, place: bytes, revision: str) -> str | None:
    asked = git.try_run(
        *("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"),
        environment={b"GIT_DIR": place},
    )
    return asked.out.decode("ascii", "replace").strip() if asked.status == 0 else None
