"""Lets git see what the other side has already, where a chain has no parent that would say so.

A push leaves out what the parents of new commits hold, and nothing else: of a timeline that was rewritten or forked, or
whose files arrived in parts, or stand in commits of code, it would send all of it again. So for the time of a push the
oldest of the new commits has these for further parents, by a file of grafts that git is given. Nothing is written into
the repository, and the commits that arrive are what they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from git_envhist.store.durable import cannot_write
from git_envhist.store.git import Git
from git_envhist.store.remoteload import known_objects

MOST_BASES = 40
"""The tree of each is walked."""


def write_grafts(
    git: Git, path: str, chains: Iterable[tuple[str, str | None]], bases: Sequence[str]
) -> Mapping[bytes, bytes]:
    """Graft chains, each given by (its new tip, its old one), onto what is there; the environment for git."""
    known = known_objects(git, [*bases, *(old for _, old in chains if old is not None)])
    onto = [oid for oid in dict.fromkeys(bases) if oid in known][:MOST_BASES]
    lines = [_line(git, new, old if old in known else None, onto) for new, old in chains]
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write("".join(line for line in lines if line))
    except OSError as error:
        raise cannot_write(error, path) from error
    return {b"GIT_GRAFT_FILE": os.fsencode(path)}


def _line(git: Git, new: str, old: str | None, onto: Sequence[str]) -> str:
    words = ["rev-list", "--first-parent", "--parents", new, *([f"^{old}"] if old is not None else []), "--"]
    listed = git.run(*words).decode("ascii").split("\n")[:-1]
    if not listed:
        return ""
    # A rewritten chain is grafted onto the old one too.
    oldest, *parents = listed[-1].split(" ")
    further = [
        oid for oid in (*([old] if old is not None else []), *onto) if oid not in (*parents, new, oldest)
    ]
    return " ".join([oldest, *parents, *dict.fromkeys(further)]) + "\n"
