"""Where git keeps the git directories of submodules, and what their `.git` files say of it.

Those of a working tree lie in `modules` of its own git directory; a linked worktree's are apart from the first one's.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from git_envhist.system import open_file_only

GITDIR = b"gitdir: "
LONGEST = 1 << 13
MODULES = re.compile(rb"(?:worktrees/[^/]+/)?modules/(.+)", re.DOTALL)


def git_directory_of(directory: bytes, pointer: bytes) -> bytes | None:
    """The git directory that a `.git` file in this directory names, links resolved; None where it names none."""
    if not pointer.startswith(GITDIR) or b"\0" in pointer or len(pointer) > LONGEST:
        return None
    return os.path.realpath(os.path.join(directory, pointer[len(GITDIR) :].rstrip(b"\r\n")))


def module_of(place: bytes, common_dir: str) -> bytes | None:
    """Which submodule of a repository a git directory is that of, in whichever of its working trees."""
    common = os.path.realpath(os.fsencode(common_dir)) + b"/"
    found = MODULES.fullmatch(place[len(common) :]) if place.startswith(common) else None
    return found[1] if found is not None else None


def is_own(place: bytes, git_dir: str) -> bool:
    """Whether a git directory is one of the submodules of this very working tree."""
    return place.startswith(os.path.realpath(os.fsencode(git_dir)) + b"/modules/")


def common_dir_of(git_dir: str) -> str:
    """What a working tree shares with the others of its repository."""
    with suppress(OSError), open(os.path.join(git_dir, "commondir"), "rb", opener=open_file_only) as told:
        return os.path.join(git_dir, os.fsdecode(told.read(LONGEST).rstrip(b"\n")))
    return git_dir


def has_submodules(common_dir: str) -> bool:
    """Whether any working tree of a repository has submodules that are set up."""
    linked = os.path.join(common_dir, "worktrees")
    trees = os.listdir(linked) if os.path.isdir(linked) else []
    places = (common_dir, *(os.path.join(linked, tree) for tree in trees))
    return any(os.path.isdir(os.path.join(place, "modules")) for place in places)
