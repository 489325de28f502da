"""The moment in which packs go: alone, for as long as it takes, and taken back where somebody may rely on them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from git_envhist.errors import EnvhistError, GitFailed
from git_envhist.store.atwork import RunningGit, callers, hint_after, in_words
from git_envhist.store.durable import sync_directory, system_errors
from git_envhist.store.gitcaches import drop_graphs_of
from git_envhist.store.locks import COMMON_LOCK, locked
from git_envhist.store.merging import goes_by_packs, no_git_reads_packs
from git_envhist.store.reaching import Tips, tips_of
from git_envhist.store.repository import Repository
from git_envhist.store.retiring import ASIDE, GONE, HARMLESS, drop_caches, may_write, put_aside, put_back
from git_envhist.store.spares import forget_second_names
from git_envhist.store.staging import Staging

TRIES, PAUSE = 20, 0.25
TRIES_WHILE_CAPTURES_WAIT = 4
AGAIN = "nothing was removed; run the command again"


class RepositoryBusy(EnvhistError):
    """Packs cannot go while others may rely on them; nothing was removed."""

    code = "busy"


@contextmanager
def exclusive_access(repository: Repository, *, removes: bool) -> Iterator[None]:
    """No capture runs, and no git goes by packs: as soon as that is so.

    `removes`: objects go, and not only the packs that they stand in; no git may be adding anything either.
    """
    for turn in range(TRIES):
        if turn:
            time.sleep(PAUSE)
        with locked(os.path.join(repository.common_state, COMMON_LOCK), limited=True):
            writers = may_write(repository.gits_at_work() or ()) if removes else ()
            if not writers and no_git_reads_packs(
                repository.common_dir, lambda: _but_for_readers(repository.gits_at_work())
            ):
                yield
                return
    raise _busy(repository.gits_at_work() or ())


def _but_for_readers(gits: list[RunningGit] | None) -> list[RunningGit] | None:
    # Captures that wait for us have begun gits that only read: beside many of them there would never be quiet.
    return None if gits is None else [git for git in gits if git.command not in HARMLESS]


def remove_packs(
    repository: Repository,
    staging: Staging,
    bases: Sequence[str],
    gone: set[bytes],
    check: Callable[[Tips], object],
) -> tuple[str, ...]:
    """Have packs go, whose needed objects stand elsewhere now; they come back where somebody wants them.

    The words by which git makes its commit-graph anew, where the old one spoke of what goes.
    """
    tips = tips_of(repository.git)
    # One that began while the last of it was written has listed them, and would miss them until they come back.
    _wait_for_others(repository, removes=False)
    forget_second_names(repository.common_state, repository.pack_dir, bases)
    aside = os.path.join(staging.path, ASIDE)
    staging.holds_others()
    with system_errors(repository.pack_dir):
        return _let_go(repository, aside, bases, gone, lambda: check(tips))


def _let_go(
    repository: Repository, aside: str, bases: Sequence[str], gone: set[bytes], check: Callable[[], object]
) -> tuple[str, ...]:
    try:
        put_aside(repository.pack_dir, aside, bases)
        _wait_for_others(repository, removes=bool(gone))
        # Whoever was at work when they went has ended: what they left shows what they relied on.
        check()
    except BaseException as error:
        put_back(aside, repository.pack_dir, bases)
        sync_directory(repository.pack_dir)
        if isinstance(error, GitFailed):
            raise RepositoryBusy("what was to go is needed again", hint=AGAIN) from error
        raise
    anew = drop_graphs_of(repository.objects_dir, gone, repository.hash_length)
    os.rename(aside, os.path.join(os.path.dirname(aside), GONE))
    drop_caches(repository.pack_dir, bases)
    sync_directory(repository.pack_dir)
    return anew


def _wait_for_others(repository: Repository, *, removes: bool) -> None:
    gits: Sequence[RunningGit] | None = ()
    for turn in range(TRIES_WHILE_CAPTURES_WAIT):
        if turn:
            time.sleep(PAUSE)
        gits = repository.gits_at_work()
        if goes_by_packs(repository.common_dir, gits):
            break
        if not removes or not may_write(gits or ()):
            return
    raise _busy(gits or ())


def _busy(gits: Sequence[RunningGit]) -> RepositoryBusy:
    ours = callers()
    others = [git for git in gits if git.pid not in ours and git.command not in HARMLESS]
    return RepositoryBusy(
        f"packs cannot be removed while another git may use them: {in_words(others)}", hint=hint_after(others)
    )
