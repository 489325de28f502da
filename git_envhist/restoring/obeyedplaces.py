"""Refuse to write an unsigned snapshot where a version control program obeys what it finds.

Into `.git/hooks`, a file of a snapshot would be run by the next commit, under whatever name it has. The rules for the
repositories that a snapshot brings (`gitdirs`) do not see that, because they judge paths below the directory alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from git_envhist.errors import Refused
from git_envhist.restoring.obeyed import OTHER_SYSTEMS, folded
from git_envhist.store.git import Git

PARTS = ("HEAD", "objects", "refs")
PLACES = ("core.hooksPath", "init.templateDir")
"""Configured directories whose files git runs, or copies to where it runs them."""


class PlaceObeyed(Refused):
    """An unsigned snapshot was to be written where a version control program obeys what it finds."""

    code = "place-obeyed"


def refuse_obeyed_place(directory: str, git: Git, top: str) -> None:
    """Raise `PlaceObeyed` if a directory is in a repository's own directory, or in one of hooks.

    `git`, `top`: the configuration that names directories of hooks, and what their paths are relative to.
    """
    root = os.path.realpath(directory)
    found = next(_around(root), None) or next(_configured(root, git, top), None)
    if found is not None:
        raise PlaceObeyed(
            f"no key that is here signed this snapshot, and programs obey what is in '{found}'",
            hint="write it to a directory outside of it, and look at it there",
        )


def _around(root: str) -> Iterator[str]:
    """Yield the repositories' own directories that a path is in, or is itself."""
    place = root
    while place != os.path.dirname(place):
        above, name = os.path.split(place)
        is_git = all(os.path.lexists(os.path.join(place, part)) for part in PARTS)
        plain = folded(os.fsencode(name))
        if is_git or plain == b".git" or plain in OTHER_SYSTEMS:
            yield place
        place = above


def _configured(root: str, git: Git, top: str) -> Iterator[str]:
    for key in PLACES:
        done = git.try_run("config", "--type=path", "-z", "--get-all", key)
        for value in done.out.split(b"\0")[:-1] if done.status == 0 else ():
            place = os.path.realpath(os.path.join(top, os.fsdecode(value)))
            if f"{root}/".startswith(place.rstrip("/") + "/"):
                yield place
