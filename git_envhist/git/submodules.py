"""Git directories of working trees and submodules."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from git_envhist.git.running_git import GITDIR, MAX_LENGTH
from git_envhist.lazy import pattern
from git_envhist.platform import open_file_only

MODULES = pattern(rb"(?:worktrees/[^/]+/)?modules/(.+)", re.DOTALL)


def git_directory_of(directory: bytes, pointer: bytes) -> bytes | None:
    """Return the git directory that a `.git` file names, with links resolved; None if it names none."""
    if not pointer.startswith(GITDIR) or b"\0" in pointer or len(pointer) > MAX_LENGTH:
        return None
    return os.path.realpath(os.path.join(directory, pointer[len(GITDIR) :].rstrip(b"\r\n")))


def submodule_of(place: bytes, common_dir: str) -> bytes | None:
    """Return the name of the submodule that a git directory belongs to, in any working tree of the repository."""
    common = os.path.realpath(os.fsencode(common_dir)) + b"/"
    found = MODULES.fullmatch(place[len(common) :]) if place.startswith(common) else None
    return found[1] if found is not None else None


def is_own_submodule(place: bytes, git_dir: str) -> bool:
    """Return whether a git directory belongs to a submodule of this working tree."""
    return place.startswith(os.path.realpath(os.fsencode(git_dir)) + b"/modules/")


def common_dir_of(git_dir: str) -> str:
    """Return the directory that a working tree shares with the others of its repository."""
    with suppress(OSError), open(os.path.join(git_dir, "commondir"), "rb", opener=open_file_only) as file:
        return os.path.join(git_dir, os.fsdecode(file.read(MAX_LENGTH).rstrip(b"\n")))
    return git_dir


def has_submodules(common_dir: str) -> bool:
    """Return whether any working tree of a repository has initialized submodules."""
    linked = os.path.join(common_dir, "worktrees")
    trees = os.listdir(linked) if os.path.isdir(linked) else []
    places = (common_dir, *(os.path.join(linked, tree) for tree in trees))
    return any(os.path.isdir(os.path.join(place, "modules")) for place in places)
