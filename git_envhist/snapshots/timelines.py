"""Remember what became of timelines and commits: chains left behind, and the new ids of rewritten commits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from git_envhist.disk import cannot_write, state_directory, sync, sync_directory
from git_envhist.platform import open_file_only

# Timelines that began anew because their newest snapshot could not be read: what stood before it may be whole.
#
# No ref leads there any more, so that to git it is garbage. Until a repair has put it back nothing of it goes.

LEFT_BEHIND_FILE = "left-behind"


def read_left_behind(common_state: str) -> list[str]:
    """The names of the timelines."""
    try:
        with open(
            os.path.join(common_state, LEFT_BEHIND_FILE),
            encoding="utf-8",
            errors="replace",
            opener=open_file_only,
        ) as file:
            return list(dict.fromkeys(file.read().split()))
    except OSError:
        return []


def remember_left_behind(common_state: str, timeline: str) -> None:
    """Add one, for good: before its ref moves."""
    path = os.path.join(state_directory(common_state), LEFT_BEHIND_FILE)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, os.fsencode(f"{timeline}\n"))
            sync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(common_state)
    except OSError as error:
        raise cannot_write(error, path) from error


def forget_left_behind(common_state: str) -> None:
    """Nothing is missing from any of them."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(common_state, LEFT_BEHIND_FILE))


# Which commit a rewritten one has become: a private list, for whoever still holds the old hash.
#
# A check that ran for an hour notes its verdict on the commit that it knew; what is remembered of the environment
# relies on one. Ids need no such list, they stand in the commits. To lose it costs time, and a note its place.

REWRITTEN_IDS_FILE = "rewritten"
MAX_SIZE = 1 << 20


def read_rewritten(common_state: str) -> dict[str, str]:
    """By old hash the one after it; the last word counts."""
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
    while sum(map(len, lines)) > MAX_SIZE:
        lines = lines[len(lines) // 2 :]
    path = os.path.join(state_directory(common_state), REWRITTEN_IDS_FILE)
    try:
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write("".join(lines))
        os.rename(path + ".new", path)
    except OSError as error:
        raise cannot_write(error, common_state) from error
