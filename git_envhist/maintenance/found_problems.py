"""Problems that the daily check found, stored until they are repaired."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from git_envhist.disk import Durability, replace_file
from git_envhist.platform import open_file_only

# Problems found by the daily check: stored until a thorough check finds none, and printed by `git envlog`.

FILE = "trouble"
MAX_LENGTH = 2000


def read_problems(common_state: str) -> list[str]:
    """Return the stored problems, one sentence each."""
    try:
        with open(
            os.path.join(common_state, FILE), encoding="utf-8", errors="replace", opener=open_file_only
        ) as file:
            return file.read(MAX_LENGTH).splitlines()
    except OSError:
        return []


def save_problems(common_state: str, sentences: Iterable[str]) -> None:
    """Store problems for `git envlog` to show."""
    path = os.path.join(common_state, FILE)
    text = "".join(sentence.replace("\n", " ") + "\n" for sentence in sentences)
    replace_file(path, text.encode("utf-8", "replace"), durability=Durability.NONE)


def clear_problems(common_state: str) -> None:
    """Delete the stored problems."""
    with suppress(OSError):
        os.unlink(os.path.join(common_state, FILE))
