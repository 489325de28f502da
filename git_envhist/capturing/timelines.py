"""The name of a working tree's timeline: minted at its first capture, kept in its git directory."""

from __future__ import annotations

import os
import re

from git_envhist.errors import EnvhistError
from git_envhist.settings import Settings
from git_envhist.store.durable import sync_directory
from git_envhist.store.locks import state_directory
from git_envhist.store.repository import Repository
from git_envhist.system import open_file_only
from git_envhist.values import pattern

FILE = "timeline"
FORK = "fork"
"""Stands where the working tree is a fork: its timeline is its own, whatever is configured for all of them."""
GOOD_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def current_timeline(repository: Repository, settings: Settings) -> str | None:
    """The timeline of this working tree, or None before its first capture."""
    if settings.timeline is not None and not os.path.exists(os.path.join(repository.state, FORK)):
        return _checked(settings.timeline, "envhist.timeline")
    path = os.path.join(repository.state, FILE)
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_file_only) as file:
            return _checked(file.read().strip(), path)
    except FileNotFoundError:
        return None


def ensure_timeline(repository: Repository, settings: Settings) -> str:
    """The timeline of this working tree, named now if need be; called with the working tree locked."""
    name = current_timeline(repository, settings)
    if name is not None:
        return name
    name = mint(os.uname().nodename, os.path.basename(repository.root), os.urandom(3).hex())
    directory = state_directory(repository.state)
    # One name for all: what a killed capture left is written over by the next.
    temporary = os.path.join(directory, f"{FILE}.new")
    with open(temporary, "w", encoding="ascii") as file:
        file.write(name + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, os.path.join(directory, FILE))
    sync_directory(directory)
    return name


def mark_fork(repository: Repository) -> None:
    """From now on this working tree has a timeline of its own."""
    directory = state_directory(repository.state)
    os.close(os.open(os.path.join(directory, FORK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    sync_directory(directory)


def mint(host: str, directory: str, tail: str) -> str:
    """Two components that git takes as a ref, whatever the host and the directory are called."""
    return f"{slug(host.partition('.')[0])}/{slug(directory)}-{tail}"


def slug(text: str) -> str:
    """A word of letters and digits that reminds of a text."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return plain or "env"


def _checked(name: str, place: str) -> str:
    if (
        not GOOD_NAME.fullmatch(name)
        or ".." in name
        or name.endswith((".lock", "."))
        or ".lock/" in name
        or "./" in name
    ):
        raise EnvhistError(
            f"not a timeline's name: '{name}' (in {place})",
            hint="two words of letters and digits: <host>/<directory>",
        )
    return name
