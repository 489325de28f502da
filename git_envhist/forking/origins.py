"""Which places a fork may point back to: where the moment was taken, and where the first of these trees stands."""

from __future__ import annotations

import os

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.capturing.timelines import current_timeline
from git_envhist.errors import EnvhistError
from git_envhist.opening import homes_of
from git_envhist.settings import read_settings
from git_envhist.store.git import clean_environment
from git_envhist.store.plain import open_plain
from git_envhist.store.repository import Repository

WORKTREE = b"worktree "


def origins_of(source: CapturePipeline, timeline: str, fork: Repository) -> tuple[str, ...]:
    """The working tree at hand, the first one of its repository, and the one that a timeline belongs to."""
    trees = [tree for tree in _trees(source) if tree.root != fork.root]
    first = [tree.root for tree in trees if tree.git_dir == tree.common_dir]
    taken = [tree.root for tree in trees if current_timeline(tree, read_settings(())) == timeline]
    return tuple(dict.fromkeys((source.repository.root, *first, *taken)))


def place_of(source: CapturePipeline, timeline: str) -> str | None:
    """Where the working tree of a timeline stands; None where there is none any more."""
    trees = _trees(source)
    return next((one.root for one in trees if current_timeline(one, read_settings(())) == timeline), None)


def _trees(source: CapturePipeline) -> list[Repository]:
    repository = source.repository
    if repository.plain:
        homes = [home for home in homes_of(source.environ).all() if home.repository == repository.common_dir]
        return [open_plain(home, home.path) for home in homes]
    listed = repository.git.run("worktree", "list", "--porcelain").split(b"\n")
    roots = [line[len(WORKTREE) :] for line in listed if line.startswith(WORKTREE)]
    return [tree for root in roots if (tree := _open(os.fsdecode(root))) is not None]


def _open(root: str) -> Repository | None:
    try:
        return Repository.open(root, clean_environment())
    except EnvhistError:
        # It is gone, or not ours to read.
        return None
