"""The name of a working tree's timeline: created at its first capture, stored in its git directory."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from git_envhist.config import Settings
from git_envhist.disk import (
    Durability,
    open_replacement,
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


class FoundTimeline(NamedTuple):
    """The result of looking up a working tree's timeline."""

    name: str | None
    """None before the first capture."""
    remark: str | None = None
    """A warning if the name could not be read from its file."""


def current_timeline(repository: Repository, settings: Settings) -> str | None:
    """Return the name of this working tree's timeline, or None before its first capture."""
    return find_timeline(repository, settings).name


def find_timeline(repository: Repository, settings: Settings) -> FoundTimeline:
    """Return the name of this working tree's timeline; recover it if its file is lost or damaged."""
    if settings.timeline is not None and not os.path.exists(os.path.join(repository.state, FORK)):
        return FoundTimeline(_checked(settings.timeline, "envhist.timeline"))
    name = read_name(repository.state)
    if name is not None:
        return FoundTimeline(name)
    path = os.path.join(repository.state, FILE)
    if os.path.isfile(repository.state):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), repository.state)
    if os.path.isdir(repository.state) and not os.access(repository.state, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), repository.state)
    damaged = os.path.lexists(path)
    if not damaged and not os.path.lexists(os.path.join(repository.state, CACHE)):
        return FoundTimeline(None)
    from git_envhist.worktree.recover_timeline_name import recover_name  # loaded late: hardly ever needed

    name = recover_name(repository, _prefix(repository), settings.timeline, damaged=damaged)
    lost = f"'{path}' is {'damaged' if damaged else 'missing'}"
    if name is not None:
        return FoundTimeline(name, f"{lost}; the name of this timeline was recovered: '{name}'")
    return FoundTimeline(
        None, f"{lost}; the name of this timeline could not be recovered" if damaged else None
    )


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

    from git_envhist.worktree.recover_timeline_name import (
        unused_timelines,  # loaded late: once per working tree
    )

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
    with open_replacement(path, durability=Durability.FULL) as descriptor:
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
