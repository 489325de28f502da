"""Merge three versions of a file that changed on both sides, by the units of its kind.

`merge_contents` is the only entry. Which units a file has depends on its path and content: lines for all other text.
A file that cannot be merged stays whole, and is one conflict.
"""

from __future__ import annotations

from typing import NamedTuple

from git_envhist.diff.classes import PACKAGES, class_of
from git_envhist.git.merge_file import merge_text
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass
from git_envhist.model import EnvPath
from git_envhist.restore.three_way import Prefer, Reason

SIDES = {Prefer.OURS, Prefer.THEIRS}


class MergedContents(NamedTuple):
    """The merged content of a file, and the conflicts in it."""

    content: bytes
    conflicts: tuple[str, ...] = ()
    """The reason of each conflict that the preferred side does not decide."""


@dataclass(frozen=True, slots=True)
class MergeTools:
    """The means of merging contents: git, the labels of markers, and the preferred side."""

    git: Git
    labels: tuple[str, str, str] = ("now", "base", "other")
    """Names of ours, base and theirs."""
    prefer: Prefer = Prefer.NEITHER


def merge_contents(
    path: EnvPath, base: bytes, ours: bytes, theirs: bytes, tools: MergeTools, *, is_secret: bool = False
) -> MergedContents | None:
    """Return the merged content of a file; None if it is taken from one side as a whole.

    `is_secret`: the content must not be written to a disk, not even to a temporary file.
    """
    if is_secret or class_of(path) == PACKAGES:
        return None
    return merge_lines(base, ours, theirs, tools)


def merge_lines(base: bytes, ours: bytes, theirs: bytes, tools: MergeTools) -> MergedContents | None:
    """Return a text merged by lines, with markers at conflicts; None if a version is no text."""
    side = tools.prefer.value if tools.prefer in SIDES else ""
    merged = merge_text(tools.git, (ours, base, theirs), tools.labels, side)
    if merged is None:
        return None
    is_open = merged.conflicts and tools.prefer is Prefer.NEITHER
    return MergedContents(merged.text, (Reason.CONTENT,) if is_open else ())
