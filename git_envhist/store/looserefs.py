"""A ref that has a file of its own, read without asking git: a hundred times as quick."""

from __future__ import annotations

import os

from git_envhist.system import open_file_only
from git_envhist.values import pattern

HASH_BYTES = pattern(rb"([0-9a-f]{40}|[0-9a-f]{64})\n")


def read_loose_ref(common_dir: str, ref: str) -> str | None:
    """The hash that the file of a ref holds; None where it has no file, or one that only git can make sense of.

    For refs that all working trees share. Their files come before any other place where git keeps refs, and where it
    keeps them otherwise (reftable) it makes no such files.
    """
    try:
        with open(os.path.join(common_dir, ref), "rb", opener=open_file_only) as file:
            text = file.read(70)
    except OSError:
        return None
    found = HASH_BYTES.fullmatch(text)
    return found[1].decode("ascii") if found else None
