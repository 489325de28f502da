"""Where a symbolic link leads (pure): out of the tree, into a repository's own directory, or nowhere harmful.

The links of the same snapshot are followed, since they will all stand when the last is made: `a -> b/..` is one thing
where `b` is a directory and another where it is a link to `c/d`.
"""

from __future__ import annotations

from collections.abc import Mapping

from git_envhist.store.names import must_escape

LONGEST_TARGET = 4095
MOST_TURNS = 40
"""As many links as a kernel follows."""
MOST_STEPS = 4096

ABSOLUTE = "a link to an absolute path"
LEAVES = "a link that leads out"
INTO_GIT = "a link into a repository's own directory"
CIRCLE = "a link in a circle"
NO_PATH = "a link to what is no path"


def is_git(name: bytes) -> bool:
    """Whether git, on some file system, would take this name for that of its own directory."""
    return name.lower() == b".git" or (must_escape(name) and not name.lower().startswith(_FILES))


_FILES = (b".gitmodules", b".gitattributes", b"gitmod", b"gitatt", b"gi7eba", b"gi7d29")


def why_unsafe(path: bytes, targets: Mapping[bytes, bytes]) -> str | None:
    """Why the link at a path shall not be made; `targets`: of all links, by their paths below one root."""
    target = targets[path]
    if not target or len(target) > LONGEST_TARGET or b"\0" in target:
        return NO_PATH
    here = path.split(b"/")[:-1]
    todo = target.split(b"/")[::-1]
    if target.startswith(b"/"):
        return ABSOLUTE
    turns = steps = 0
    while todo:
        name = todo.pop()
        steps += 1
        if name in (b"", b"."):
            continue
        if name == b"..":
            if not here:
                return LEAVES
            here.pop()
            continue
        if is_git(name):
            return INTO_GIT
        here.append(name)
        onward = targets.get(b"/".join(here))
        if onward is not None:
            turns += 1
            if turns > MOST_TURNS:
                return CIRCLE
            if onward.startswith(b"/"):
                return LEAVES
            here.pop()
            todo += onward.split(b"/")[::-1]
        if steps > MOST_STEPS:
            return CIRCLE
    return None
