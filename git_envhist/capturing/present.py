"""The live environment, side by side with moments."""

from __future__ import annotations

from git_envhist.store.git import Git
from git_envhist.values import dataclass


@dataclass(frozen=True, slots=True)
class LiveTree:
    """The live environment as a tree that git can see while the context is open."""

    git: Git
    tree: str
