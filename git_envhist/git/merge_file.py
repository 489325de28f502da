"""Merge the lines of three versions of a text file with `git merge-file`."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import NamedTuple

from git_envhist.git.process import Git

MAX_BYTES = 16 << 20
"""Larger files are not merged by lines."""
MAX_LINES = 1_000_000
"""Files with more lines are not merged: git needs 100 bytes of memory for each, and much time if all differ."""
TEXT_BYTES = 8000
"""The number of first bytes in which git looks for a NUL to find out whether a file is text."""
MAX_CONFLICTS = 127
"""The greatest exit status of `git merge-file` that counts conflicts; a greater one is an error."""


class MergedText(NamedTuple):
    """The merged text, and the number of conflicts in it (with markers, unless one side was preferred)."""

    text: bytes
    conflicts: int


def is_text(content: bytes) -> bool:
    """Return whether git takes this content for text, and it is small enough to be merged."""
    is_small = len(content) <= MAX_BYTES and content.count(b"\n") <= MAX_LINES
    return is_small and b"\0" not in content[:TEXT_BYTES]


def merge_text(
    git: Git, versions: tuple[bytes, bytes, bytes], labels: tuple[str, str, str], prefer: str = ""
) -> MergedText | None:
    """Return three versions (ours, base, theirs) merged by lines; None if one is no text.

    `prefer`: take this side (`ours`, `theirs`) of each conflict instead of markers.
    """
    if not all(map(is_text, versions)):
        return None
    with TemporaryDirectory(prefix="git-envhist-") as place:
        paths = []
        for name, content in zip(("ours", "base", "theirs"), versions, strict=True):
            paths.append(os.path.join(place, name))
            with open(paths[-1], "wb") as file:
                file.write(content)
        options = [f"--{prefer}"] if prefer else []
        for label in labels:
            options += ["-L", label]
        done = git.ask("merge-file", "-p", "-q", *options, *paths)
    return MergedText(done.out, done.status) if done.status <= MAX_CONFLICTS else None
