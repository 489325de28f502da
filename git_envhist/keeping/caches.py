"""What is remembered of working trees, where the commit that it relies on has become another one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from git_envhist.capture.statcache import StatCache
from git_envhist.store.deflate import crc32
from git_envhist.store.plain import FORKS
from git_envhist.store.repository import Repository
from git_envhist.values import replace


def states_of(repository: Repository) -> Iterator[str]:
    """Yield the state directories of all working trees: the main one, linked ones, forks of a plain directory."""
    yield os.path.join(repository.common_dir, "envhist")
    for place in ("worktrees", FORKS):
        linked = os.path.join(repository.common_dir, place)
        for name in sorted(os.listdir(linked)) if os.path.isdir(linked) else []:
            yield os.path.join(linked, name, "envhist")


def move_caches(repository: Repository, now: Mapping[str, str]) -> None:
    """Have them rely on the new commits, whose trees are the same; whoever calls keeps captures out."""
    for cache in _caches(repository):
        head = cache.read_head()
        if head is not None and now.get(head.base, head.base) != head.base:
            with suppress(OSError):
                cache.write(replace(head, base=now[head.base]), head.shards)


def forget_caches(repository: Repository) -> None:
    """Have none: the next capture reads everything once."""
    for cache in _caches(repository):
        cache.clear()


def _caches(repository: Repository) -> Iterator[StatCache]:
    for state in states_of(repository):
        directory = os.path.join(state, "cache")
        if os.path.isdir(directory):
            yield StatCache(directory, crc32)
