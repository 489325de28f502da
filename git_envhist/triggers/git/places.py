"""Where git looks for hooks: its version decides whether the configuration may name them, and it says itself where the
directory is."""

from __future__ import annotations

import os
import re

from git_envhist.errors import GitFailed
from git_envhist.store.git import SAFE_GIT, clean_environment, spawn
from git_envhist.store.repository import Repository
from git_envhist.triggers.integration import InstallTarget

CONFIGURED_SINCE = (2, 54)
"""From this version on git runs hooks that the configuration names."""


def git_version() -> tuple[int, ...]:
    """The version of the git on the PATH."""
    done = spawn(["git", "version"], clean_environment())
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", done.out)
    if found is None:
        raise GitFailed(f"git does not say its version: {done.complaint}")
    return tuple(int(part) for part in found.groups(b"0"))


def hooks_directory(repository: Repository) -> str:
    """The directory that git really uses for this working tree, whoever configured it."""
    # Without our own overrides: they would hide it.
    words = [*SAFE_GIT, "-C", repository.root, "rev-parse", "--git-path", "hooks"]
    done = spawn(words, repository.git.environment)
    if done.status != 0:
        raise GitFailed(done.complaint)
    return os.path.join(repository.root, os.fsdecode(done.out).removesuffix("\n"))


def user_config(place: InstallTarget) -> str:
    """The file that `git config --global` writes."""
    named = place.environ.get("GIT_CONFIG_GLOBAL")
    if named:
        return named
    usual = os.path.join(place.home, ".gitconfig")
    xdg = os.path.join(place.config_home, "git", "config")
    # As git has it: the second is written only where it is there and the first is not.
    return xdg if os.path.exists(xdg) and not os.path.exists(usual) else usual


def user_value(place: InstallTarget, key: str) -> str | None:
    """A path in the user's own configuration, `~` resolved; None where there is none."""
    environment = clean_environment()
    words = ["git", "config", "--file", user_config(place), "--includes", "--type=path", "--get", key]
    done = spawn(words, environment)
    return os.fsdecode(done.out).removesuffix("\n") if done.status == 0 else None


def is_below(path: str, directory: str) -> bool:
    """Whether a path is the directory or stands in it."""
    inner, outer = os.path.realpath(path), os.path.realpath(directory)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def is_ignored(repository: Repository, path: str) -> bool:
    """Whether the code takes no notice of a path in the working tree."""
    return repository.git.try_run("check-ignore", "-q", "--no-index", "--", path).status == 0
