"""Packs of ours that are replaced by others: put out of sight, brought back, let go. And who may still want them.

Packs that go are first put aside, into a staging. Who puts them there says what a kill means: below `GONE` they are on
their way out, and the next sweep takes the rest; below `ASIDE` it is not decided yet, and the sweep brings them back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from git_envhist.store.atwork import RunningGit, callers
from git_envhist.store.durable import sync_directory
from git_envhist.store.gitcaches import drop_caches_naming

GONE = "gone"
ASIDE = "aside"
SUFFIXES = (".idx", ".rev", ".bitmap", ".pack", ".keep")
"""In this order a pack goes: git stops seeing it with its index, and what is left is known as ours to the last."""
# fmt: off
HARMLESS = frozenset((
    "annotate", "blame", "cat-file", "check-attr", "check-ignore", "citool", "config", "credential-cache--daemon",
    "daemon", "diff", "diff-files", "diff-index", "diff-tree", "for-each-ref", "fsmonitor--daemon", "grep",
    "gui", "help", "instaweb", "log", "ls-files", "ls-tree", "merge-base", "name-rev", "rev-list", "rev-parse",
    "shortlog", "show", "status", "web--browse",
))
# fmt: on
"""Gits that read, or wait; they look for a pack again where it has gone, and let no object be relied upon."""


def names_of(paths: Iterable[str]) -> list[str]:
    """The packs' names, without directory and ending."""
    return [os.path.basename(path).removesuffix(".pack") for path in paths]


def put_aside(pack_dir: str, aside: str, bases: Sequence[str]) -> None:
    """Take packs out of git's sight, into a directory of their own; git's caches that name them go."""
    drop_caches(pack_dir, bases)
    with suppress(FileExistsError):
        os.mkdir(aside, 0o700)
    _move(pack_dir, aside, bases, SUFFIXES)


def put_back(aside: str, pack_dir: str, bases: Sequence[str]) -> None:
    """Put back what was put aside."""
    _move(aside, pack_dir, bases, SUFFIXES[::-1])


def drop_caches(pack_dir: str, bases: Iterable[str]) -> None:
    """Drop those of git's caches that speak of packs which have gone, or are about to."""
    drop_caches_naming(os.path.dirname(pack_dir), [os.fsencode(base + ".idx") for base in bases])


def was_used_since(base: str) -> bool:
    """Whether git touched a pack since it was written: somebody added what stands there, which git stores nowhere else.

    The index is written after its pack, and nobody touches that.
    """
    try:
        return os.stat(base + ".pack").st_mtime_ns > os.stat(base + ".idx").st_mtime_ns
    except FileNotFoundError:
        return False


def restore_undecided(path: str, pack_dir: str) -> None:
    """Bring back what a staging holds that somebody put aside who died before it was decided."""
    aside = os.path.join(path, ASIDE)
    if os.path.isdir(aside):
        bases = {name.rpartition(".")[0] for name in os.listdir(aside)}
        put_back(aside, pack_dir, sorted(bases))
        sync_directory(pack_dir)


def may_write(gits: Iterable[RunningGit]) -> list[RunningGit]:
    """Return the gits that may have found an object here, and may be writing a reference to it."""
    ours = callers()
    return [git for git in gits if git.writes and git.command not in HARMLESS and git.pid not in ours]


def _move(source: str, target: str, bases: Sequence[str], suffixes: Sequence[str]) -> None:
    # First the indexes of all, or last: only as long as these are on their way does git see some of the packs alone.
    for suffix in suffixes:
        for base in bases:
            try:
                os.rename(os.path.join(source, base + suffix), os.path.join(target, base + suffix))
            except FileNotFoundError:
                continue  # few packs have all of them
