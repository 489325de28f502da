"""The name of a working tree's timeline, and state about timelines of the repository.

A timeline's name is created at the first capture of a working tree and stored in its git directory. Two more files in
the common state: `left-behind` lists timelines with an unreadable tip, and `rewritten` maps old commits to the
commits that replaced them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from git_envhist.config import Settings
from git_envhist.disk import (
    Durability,
    append_line,
    cannot_write,
    replace_file,
    replacement,
    state_directory,
    sync_directory,
    write_all,
)
from git_envhist.errors import EnvhistError
from git_envhist.git.repository import Repository
from git_envhist.lazy import pattern
from git_envhist.platform import open_file_only

FILE = "timeline"
CACHE = "cache"
MAX_LENGTH = 1_000
"""Longer than any name."""
FORK = "fork"
"""Marker file of a fork: it has a timeline of its own, whatever timeline is configured for all working trees."""
GOOD_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Found(NamedTuple):
    """The result of looking up a working tree's timeline."""

    name: str | None
    """None before the first capture."""
    remark: str | None = None
    """A warning if the name could not be read from its file."""


def current_timeline(repository: Repository, settings: Settings) -> str | None:
    """Return the name of this working tree's timeline, or None before its first capture."""
    return find_timeline(repository, settings).name


def find_timeline(repository: Repository, settings: Settings) -> Found:
    """Return the name of this working tree's timeline; recover it if its file is lost or damaged."""
    if settings.timeline is not None and not os.path.exists(os.path.join(repository.state, FORK)):
        return Found(_checked(settings.timeline, "envhist.timeline"))
    name = read_name(repository.state)
    if name is not None:
        return Found(name)
    path = os.path.join(repository.state, FILE)
    if os.path.isfile(repository.state):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), repository.state)
    damaged = os.path.lexists(path)
    if not damaged and not os.path.lexists(os.path.join(repository.state, CACHE)):
        return Found(None)
    from git_envhist.snapshots.lost_timeline import recover_name  # loaded late: hardly ever needed

    name = recover_name(repository, _prefix(repository), settings.timeline, damaged=damaged)
    lost = f"'{path}' is {'damaged' if damaged else 'missing'}"
    if name is not None:
        return Found(name, f"{lost}; the name of this timeline was recovered: '{name}'")
    return Found(None, f"{lost}; the name of this timeline could not be recovered" if damaged else None)


def read_name(state: str) -> str | None:
    """Return the name in a working tree's state directory, or None if it is missing, unreadable or no name."""
    try:
        with open(
            os.path.join(state, FILE), encoding="utf-8", errors="replace", opener=open_file_only
        ) as file:
            name = file.read(MAX_LENGTH).strip()
    except OSError:
        return None
    return name if _is_name(name) else None


def ensure_timeline(
    repository: Repository, settings: Settings, warn: Callable[[str], None] = lambda _: None
) -> str:
    """Return the name of this working tree's timeline, and create it if it is missing.

    The caller has locked the working tree. A recovered name is written to its file again.
    """
    repository.require_tree()
    found = find_timeline(repository, settings)
    if found.name is not None and found.remark is None:
        return found.name
    name = found.name or _new_name(repository, warn)
    if found.remark is not None:
        warn(found.remark)
    _write_name(repository, name)
    return name


def _new_name(repository: Repository, warn: Callable[[str], None]) -> str:
    from shlex import quote  # loaded late: once per working tree

    from git_envhist.snapshots.lost_timeline import unused_timelines  # loaded late: once per working tree

    name = f"{_prefix(repository)}{os.urandom(3).hex()}"
    is_fork = os.path.exists(os.path.join(repository.state, FORK))
    unused = [] if is_fork else unused_timelines(repository, _prefix(repository))
    if unused:
        path = os.path.join(repository.state, FILE)
        warn(
            f"no working tree uses the timeline '{unused[0]}', and this snapshot starts another; "
            f"to continue that one: echo {unused[0]} >{quote(path)}"
        )
    return name


def _write_name(repository: Repository, name: str) -> None:
    directory = state_directory(repository.state)
    path = os.path.join(directory, FILE)
    # The damaged file gets its second name only when the new content is written.
    with replacement(path, durability=Durability.FULL) as descriptor:
        write_all(descriptor, f"{name}\n".encode("ascii"), 0)
        _keep_damaged(path)


def _keep_damaged(path: str) -> None:
    """Rename a damaged name file; its content is preserved in case it was readable after all."""
    backup = f"{path}.damaged"
    with suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            os.rename(path, backup)
        elif os.path.lexists(path):
            with suppress(FileNotFoundError):
                os.unlink(backup)
            os.link(path, backup, follow_symlinks=False)


def _prefix(repository: Repository) -> str:
    return new_timeline_name(os.uname().nodename, os.path.basename(repository.root), "")


def mark_fork(repository: Repository) -> None:
    """Mark this working tree as a fork: from now on it has a timeline of its own."""
    directory = state_directory(repository.state)
    os.close(os.open(os.path.join(directory, FORK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    sync_directory(directory)


def new_timeline_name(host: str, directory: str, tail: str) -> str:
    """Return a name of two components that is a valid ref for any host and directory name."""
    return f"{slug(host.partition('.')[0])}/{slug(directory)}-{tail}"


def slug(text: str) -> str:
    """Return a word of letters and digits derived from a text."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return plain or "env"


def _checked(name: str, place: str) -> str:
    if not _is_name(name):
        raise EnvhistError(
            f"not a timeline's name: '{name}' (in {place})",
            hint="two words of letters and digits: <host>/<directory>",
        )
    return name


def _is_name(name: str) -> bool:
    return bool(
        GOOD_NAME.fullmatch(name)
        and ".." not in name
        and not name.endswith((".lock", "."))
        and ".lock/" not in name
        and "./" not in name
    )


# Timelines that were restarted because their tip could not be read. Older snapshots may still exist; no ref leads to
# them, so for git they are garbage. Until a repair has recovered them nothing of them is deleted.

LEFT_BEHIND_FILE = "left-behind"


def read_left_behind(common_state: str) -> list[str]:
    """Return the names of these timelines."""
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
    """Add a timeline, durably, before its ref moves."""
    path = os.path.join(state_directory(common_state), LEFT_BEHIND_FILE)
    try:
        append_line(path, os.fsencode(timeline), durability=Durability.FULL)
    except OSError as error:
        raise cannot_write(error, path) from error


def forget_left_behind(common_state: str) -> None:
    """Delete the list: nothing is missing from any timeline."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(common_state, LEFT_BEHIND_FILE))


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


def remember_rewritten(common_state: str, now: Mapping[str, str]) -> None:
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
