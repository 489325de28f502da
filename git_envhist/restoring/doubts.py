"""What a moment holds and does not vouch for: files that changed under every reading."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from git_envhist.model import MissingPath, RestorePlan
from git_envhist.store.git import Git
from git_envhist.store.layout import RESERVED, UNSTABLE
from git_envhist.store.listings import read_missing
from git_envhist.store.manifest import BUDGET
from git_envhist.store.objects import CatFile

TOLD = 5


def unstable_path_warnings(git: Git, tree: str, plan: RestorePlan | None = None) -> tuple[str, ...]:
    """Warnings about what a plan, or else the whole of a moment, brings as it was read while it changed."""
    with CatFile(git, largest=BUDGET.size) as reader:
        found = reader.read(f"{tree}:{os.fsdecode(RESERVED + b'/' + UNSTABLE)}")
    items = read_missing(found.data) if found is not None else []
    if plan is not None:
        items = list(_touched(items, plan))
    words = [
        f"'{os.fsdecode(item.path)}' comes as it was read while it changed{': ' if item.detail else ''}{item.detail}"
        for item in items[:TOLD]
    ]
    more = len(items) - TOLD
    return (*words, f"and {more:,} more paths were read while they changed") if more > 0 else tuple(words)


def _touched(items: Iterable[MissingPath], plan: RestorePlan) -> Iterator[MissingPath]:
    brought = [step.shown for step in plan.steps if step.after is not None]
    for item in items:
        inside = item.path + b"/" if item.path else b""
        # A directory that a server was at work on, or a file in a directory that comes as a whole.
        if any(
            path == item.path or path.startswith(inside) or item.path.startswith(path + b"/")
            for path in brought
        ):
            yield item
