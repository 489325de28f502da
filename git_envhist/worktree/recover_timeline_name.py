"""Recover the name of a working tree's timeline from its stat cache and its refs if the file with the name is lost."""

from __future__ import annotations

import os

from git_envhist.errors import EnvhistError
from git_envhist.git.repository import TIMELINE_REFS, Repository, state_directories
from git_envhist.objects.deflate import crc32
from git_envhist.snapshots.log import read_snapshot
from git_envhist.worktree.stat_cache import StatCache

CACHE = "cache"


def recover_name(repository: Repository, prefix: str, configured: str | None, *, damaged: bool) -> str | None:
    """Return the name that the working tree's last capture used, or None if it cannot be determined.

    `prefix`: the start of every name that would be created here. `configured`: the timeline that the configuration
    gives to the working trees that are not forks; it is never recovered. `damaged`: the file with the name exists, so
    this working tree certainly had a timeline; then the newest timeline that no other working tree uses is accepted
    as well.
    """
    from git_envhist.worktree.timeline_name import (
        read_name,  # loaded late: it imports this module late itself
    )

    try:
        tips = _tips_by_age(repository)
        others = {read_name(state) for state in state_directories(repository) if state != repository.state}
        others.add(configured)
        free = [name for name in tips if name not in others]
        last = _last_captured(repository)
    except EnvhistError:
        return None
    if last in free:
        return last
    if not damaged:
        return None
    alike = [name for name in free if name.startswith(prefix)]
    if alike:
        return alike[0]
    return free[0] if len(free) == 1 else None


def unused_timelines(repository: Repository, prefix: str) -> list[str]:
    """Return the timelines with this prefix that no working tree uses, the newest first."""
    from git_envhist.worktree.timeline_name import (
        read_name,  # loaded late: it imports this module late itself
    )

    used = {read_name(state) for state in state_directories(repository)}
    return [name for name in _tips_by_age(repository) if name.startswith(prefix) and name not in used]


def _tips_by_age(repository: Repository) -> list[str]:
    listed = repository.git.ask("for-each-ref", "--sort=-committerdate", "--format=%(refname)", TIMELINE_REFS)
    return [os.fsdecode(line).removeprefix(TIMELINE_REFS) for line in listed.out.splitlines()]


def _last_captured(repository: Repository) -> str | None:
    """Return the timeline of the snapshot that the stat cache relies on."""
    head = StatCache(os.path.join(repository.state, CACHE), crc32).read_head()
    if head is None:
        return None
    found = repository.git.try_run("cat-file", "commit", head.base)
    return read_snapshot(head.base, found.out).timeline if found.status == 0 else None
