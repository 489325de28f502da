"""Read one loose ref without starting git."""

from __future__ import annotations

import os

from git_envhist.git.running_git import HASH_BYTES
from git_envhist.platform import open_file_only


def read_loose_ref(common_dir: str, ref: str) -> str | None:
    """Return the hash in the file of a ref; None if it has no file, or one that only git can read.

    For refs shared by all working trees. Their files take precedence over other places where git stores refs, and
    with reftable such files do not exist.
    """
    try:
        with open(os.path.join(common_dir, ref), "rb", opener=open_file_only) as file:
            text = file.read(70)
    except OSError:
        return None
    found = HASH_BYTES.fullmatch(text)
    return found[1].decode("ascii") if found else None
