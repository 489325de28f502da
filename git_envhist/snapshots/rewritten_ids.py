"""New ids of commits that a rewrite replaced."""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.disk import Durability, cannot_write, replace_file, state_directory
from git_envhist.platform import open_file_only

# Commits that a rewrite replaced: for processes that started before the rewrite, such as a check that records its
# verdict on the commit it ran on. Ids need no such list, they are in the commits. Losing the file costs time, and a
# note its place.

REWRITTEN_IDS_FILE = "rewritten"
MAX_SIZE = 1 << 20


def read_rewritten(common_state: str) -> dict[str, str]:
    """Return for each old hash the one that replaced it; later lines win."""
    try:
        with open(
            os.path.join(common_state, REWRITTEN_IDS_FILE),
            encoding="ascii",
            errors="replace",
            opener=open_file_only,
        ) as file:
            pairs = [line.split() for line in file.read(2 * MAX_SIZE).splitlines()]
    except OSError:
        return {}
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def current_commit(rewritten: Mapping[str, str], commit: str) -> str:
    """Return the current hash of a commit, over any number of rewrites."""
    seen = {commit}
    while (following := rewritten.get(commit)) is not None and following not in seen:
        seen.add(following)
        commit = following
    return commit


def record_rewritten(common_state: str, now: Mapping[str, str]) -> None:
    """Add pairs to the list; the older half of a long list is dropped."""
    pairs = {**read_rewritten(common_state), **{old: new for old, new in now.items() if old != new}}
    lines = [f"{old} {new}\n" for old, new in pairs.items()]
    while sum(map(len, lines)) > MAX_SIZE:
        lines = lines[len(lines) // 2 :]
    path = os.path.join(state_directory(common_state), REWRITTEN_IDS_FILE)
    try:
        replace_file(path, "".join(lines).encode("ascii"), durability=Durability.NONE)
    except OSError as error:
        raise cannot_write(error, common_state) from error
