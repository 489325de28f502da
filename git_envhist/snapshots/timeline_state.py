"""State about timelines of a repository: timelines with an unreadable tip, and new ids of rewritten commits.

Two files in the common state: `left-behind` lists timelines with an unreadable tip, and `rewritten` maps old commits to
the commits that replaced them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from git_envhist.disk import (
    Durability,
    append_line,
    cannot_write,
    replace_file,
    state_directory,
)
from git_envhist.platform import open_file_only

# Timelines that were restarted because their tip could not be read. Older snapshots may still exist; no ref leads to
# them, so for git they are garbage. Until a repair has recovered them nothing of them is deleted.

RESTARTED_FILE = "left-behind"


def read_restarted(common_state: str) -> list[str]:
    """Return the names of the restarted timelines."""
    try:
        with open(
            os.path.join(common_state, RESTARTED_FILE),
            encoding="utf-8",
            errors="replace",
            opener=open_file_only,
        ) as file:
            return list(dict.fromkeys(file.read().split()))
    except OSError:
        return []


def record_restarted(common_state: str, timeline: str) -> None:
    """Add a timeline, durably, before its ref moves."""
    path = os.path.join(state_directory(common_state), RESTARTED_FILE)
    try:
        append_line(path, os.fsencode(timeline), durability=Durability.FULL)
    except OSError as error:
        raise cannot_write(error, path) from error


def clear_restarted(common_state: str) -> None:
    """Delete the list: nothing is missing from any timeline."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(common_state, RESTARTED_FILE))


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
