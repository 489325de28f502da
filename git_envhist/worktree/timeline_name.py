"""The name of a working tree's timeline: minted at its first capture, kept in its git directory."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from git_envhist.config import Settings
from git_envhist.disk import state_directory, sync_directory
from git_envhist.errors import EnvhistError
from git_envhist.git.repository import Repository
from git_envhist.lazy import pattern
from git_envhist.platform import open_file_only

FILE = "timeline"
CACHE = "cache"
MAX_LENGTH = 1_000
"""More characters than a name has."""
FORK = "fork"
"""Stands where the working tree is a fork: its timeline is its own, whatever is configured for all of them."""
GOOD_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Found(NamedTuple):
    """The timeline of a working tree, as its name was found."""

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
    from git_envhist.worktree.lost_timeline import recover_name  # loaded late: hardly ever needed

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
    """Return the name of this working tree's timeline, minted if it has none; the caller holds the working tree's lock.

    A name that had to be recovered is written again.
    """
    repository.require_tree()
    found = find_timeline(repository, settings)
    if found.name is not None and found.remark is None:
        return found.name
    name = found.name or _minted(repository, warn)
    if found.remark is not None:
        warn(found.remark)
    _write_name(repository, name)
    return name


def _minted(repository: Repository, warn: Callable[[str], None]) -> str:
    from shlex import quote  # loaded late: once per working tree

    from git_envhist.worktree.lost_timeline import unused_timelines  # loaded late: likewise

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
    # The temporary file always has the same name, so that the next capture overwrites the file of a killed one.
    temporary = f"{path}.new"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(name + "\n")
        file.flush()
        os.fsync(file.fileno())
    _keep_damaged(path)
    os.rename(temporary, path)
    sync_directory(directory)


def _keep_damaged(path: str) -> None:
    """Give what exists at the place of the name a second name; nothing is lost if it was readable after all."""
    kept = f"{path}.damaged"
    with suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            os.rename(path, kept)
        elif os.path.lexists(path):
            with suppress(FileNotFoundError):
                os.unlink(kept)
            os.link(path, kept, follow_symlinks=False)


def _prefix(repository: Repository) -> str:
    return new_timeline_name(os.uname().nodename, os.path.basename(repository.root), "")


def mark_fork(repository: Repository) -> None:
    """From now on this working tree has a timeline of its own."""
    directory = state_directory(repository.state)
    os.close(os.open(os.path.join(directory, FORK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    sync_directory(directory)


def new_timeline_name(host: str, directory: str, tail: str) -> str:
    """Two components that git takes as a ref, whatever the host and the directory are called."""
    return f"{slug(host.partition('.')[0])}/{slug(directory)}-{tail}"


def slug(text: str) -> str:
    """A word of letters and digits that reminds of a text."""
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
