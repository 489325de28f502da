"""What a check that came by itself found wrong: kept until a thorough one finds all well, and shown by `git envlog`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from git_envhist.system import open_file_only

FILE = "trouble"
LONGEST = 2000


def read_trouble(common_state: str) -> list[str]:
    """A sentence each; none where all was well."""
    try:
        with open(
            os.path.join(common_state, FILE), encoding="utf-8", errors="replace", opener=open_file_only
        ) as file:
            return file.read(LONGEST).splitlines()
    except OSError:
        return []


def save_problems(common_state: str, sentences: Iterable[str]) -> None:
    """Have it shown."""
    path = os.path.join(common_state, FILE)
    with open(path + ".new", "w", encoding="utf-8", errors="replace") as file:
        file.write("".join(sentence.replace("\n", " ") + "\n" for sentence in sentences))
    os.rename(path + ".new", path)


def forget_trouble(common_state: str) -> None:
    """All is well."""
    with suppress(OSError):
        os.unlink(os.path.join(common_state, FILE))
