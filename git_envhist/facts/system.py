"""The packages of the machine, by whichever manager keeps them.

Each manager keeps one list (or a few directories) whose stat tells whether anything changed; nothing is read as long as
that is the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from git_envhist.model import Fact

PROBE = "system"
SOURCES = {
    "dpkg": ("var/lib/dpkg/status", "var/lib/apt/extended_states"),
    "apk": ("lib/apk/db/installed", "usr/lib/apk/db/installed", "etc/apk/world"),
}
"""By manager, the files that its list is made of."""


def stamp(root: str) -> str:
    """The stats of all lists that there are."""
    seen = []
    for paths in SOURCES.values():
        for path in paths:
            try:
                told = os.stat(os.path.join(root, path))
            except OSError:
                continue
            seen.append(f"{path}:{told.st_ino}:{told.st_size}:{told.st_mtime_ns}:{told.st_ctime_ns}")
    return " ".join(seen) or "none"


def facts_of(root: str) -> Iterator[Fact]:
    """Every installed package."""
    for manager, paths in SOURCES.items():
        if any(os.path.exists(os.path.join(root, path)) for path in paths):
            module: Any = import_module(f"git_envhist.facts.{manager}")
            yield from module.installed(root)
