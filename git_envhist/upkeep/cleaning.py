"""One cleaning, from what killed runs left to the repository of what was fetched; and the one that comes by itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from git_envhist.capturing.publish import is_published
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.model import Collected
from git_envhist.store.collecting import NOTHING_STAYS, collect
from git_envhist.store.fetched import Fetched
from git_envhist.store.handover import SomebodyAtWork
from git_envhist.store.repository import Repository
from git_envhist.store.staging import sweep
from git_envhist.system import core_count
from git_envhist.upkeep.daily import postpone, step_back

NOW, NEVER = ("now", "all"), ("never", "false")
HINT = "git envlog gc --prune=now"


def clean(repository: Repository, prune: str | None, tell: Callable[[str], None]) -> Collected:
    """What somebody asked for."""
    keep_since = since_when(repository, prune)
    sweep_killed(repository)
    done = collect(repository, keep_since=keep_since, threads=core_count(), tell=tell)
    fetched = Fetched.of(repository)
    if fetched.is_there:
        tell("packing what was fetched")
        fetched.git.run("gc", "--quiet")
    return done


def daily(repository: Repository, thin: Callable[[], None]) -> None:
    """What comes by itself; `thin`: lets go what is not to be kept."""
    step_back()
    try:
        sweep_killed(repository)
        # What cannot be thinned today can be packed all the same.
        with suppress(EnvhistError):
            thin()
        collect(repository, thorough=False)
    except SomebodyAtWork:
        postpone(repository)


def sweep_killed(repository: Repository) -> None:
    """Clear up after captures and cleanings that died."""
    git = repository.git
    sweep(repository.common_state, repository.pack_dir, lambda commit: is_published(git, commit))


def since_when(repository: Repository, words: str | None) -> float | None:
    """The moment that is meant, in git's words; None where none is said."""
    if words is None:
        return None
    if words in NOW:
        return NOTHING_STAYS
    if words in NEVER:
        return -NOTHING_STAYS
    told = os.fsdecode(repository.git.run("rev-parse", f"--since={words}")).strip()
    moment = told.removeprefix("--max-age=")
    if not moment.isdecimal():
        raise UsageError(f"not a time: '{words}'", hint=HINT)
    return float(moment)
