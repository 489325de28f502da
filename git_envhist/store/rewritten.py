"""Which commit a rewritten one has become: a private list, for whoever still holds the old hash.

A check that ran for an hour notes its verdict on the commit that it knew; what is remembered of the environment relies
on one. Ids need no such list, they stand in the commits. To lose it costs time, and a note its place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.store.durable import cannot_write
from git_envhist.store.locks import state_directory
from git_envhist.system import open_file_only

FILE = "rewritten"
LARGEST = 1 << 20


def read_rewritten(common_state: str) -> dict[str, str]:
    """By old hash the one after it; the last word counts."""
    try:
        with open(
            os.path.join(common_state, FILE), encoding="ascii", errors="replace", opener=open_file_only
        ) as file:
            pairs = [line.split() for line in file.read(2 * LARGEST).splitlines()]
    except OSError:
        return {}
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def current_commit(rewritten: Mapping[str, str], commit: str) -> str:
    """What a commit has become, by however many steps."""
    seen = {commit}
    while (following := rewritten.get(commit)) is not None and following not in seen:
        seen.add(following)
        commit = following
    return commit


def remember_rewritten(common_state: str, now: Mapping[str, str]) -> None:
    """Add to the list; the older half of a long one goes."""
    pairs = {**read_rewritten(common_state), **{old: new for old, new in now.items() if old != new}}
    lines = [f"{old} {new}\n" for old, new in pairs.items()]
    while sum(map(len, lines)) > LARGEST:
        lines = lines[len(lines) // 2 :]
    path = os.path.join(state_directory(common_state), FILE)
    try:
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write("".join(lines))
        os.rename(path + ".new", path)
    except OSError as error:
        raise cannot_write(error, common_state) from error
