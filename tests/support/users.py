"""Find the tests of the default layer that `.ci/run` runs once more as root, by what their files are about."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TOP = Path(__file__).parents[2]
DIRECTORIES = ("capture", "crash", "diff", "end_to_end", "fork", "git", "hygiene", "restore", "worktree")
"""Directories of tests of programs that read, write and replace the files of a user."""

PERMISSIONS = re.compile(
    # Making a script executable does not test permissions.
    r"chmod\((?![^)\n]*0o7[05][05]\))"
    r"|chown|umask|getuid|geteuid|setgid|os\.access|PermissionError|EACCES|EPERM|support\.privileges"
)
SEARCH = re.compile(r"support\.depth")
IMPORTED = re.compile(r"^ *from (tests\.(?!support\b)[\w.]+) import", re.MULTILINE)


def runs_as_both_users(path: Path) -> bool:
    """Return whether permissions or owners matter to the tests of a file, according to its text or its helpers'
    text."""
    return path.parent.name in DIRECTORIES and PERMISSIONS.search(_text(path)) is not None


def is_search(path: Path) -> bool:
    """Return whether the default run samples the cases that the tests of a file try under `--full`."""
    return path.parent.name in DIRECTORIES and SEARCH.search(_text(path)) is not None


@cache
def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    helpers = (TOP / f"{name.replace('.', '/')}.py" for name in IMPORTED.findall(text))
    return "".join([text, *(helper.read_text(encoding="utf-8") for helper in helpers if helper.exists())])
