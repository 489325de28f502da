"""The packages of the machine, by whichever manager keeps them.

Each manager keeps one list (or a few directories) whose stat tells whether anything changed; nothing is read as long as
that is the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from importlib import import_module
from itertools import chain
from typing import Any

from git_envhist.model import Fact

BREWS = ("opt/homebrew", "usr/local", "home/linuxbrew/.linuxbrew")
SOURCES = {
    "dpkg": ("var/lib/dpkg/status", "var/lib/apt/extended_states"),
    "apk": ("lib/apk/db/installed", "usr/lib/apk/db/installed", "etc/apk/world"),
    "rpm": (
        "var/lib/rpm/rpmdb.sqlite",
        "var/lib/rpm/rpmdb.sqlite-wal",
        "usr/lib/sysimage/rpm/rpmdb.sqlite",
        "usr/lib/sysimage/rpm/rpmdb.sqlite-wal",
    ),
    "brew": tuple(f"{prefix}/{room}/" for prefix in BREWS for room in ("Cellar", "Caskroom")),
}
"""By manager, the files that its list is made of; with a slash behind, directories that hold one for each package."""


def stamp(root: str) -> str:
    """The stats of all lists that there are."""
    seen = []
    for path in chain(*SOURCES.values()):
        try:
            told = os.stat(os.path.join(root, path))
        except OSError:
            continue
        seen.append(f"{path}:{told.st_ino}:{told.st_size}:{told.st_mtime_ns}:{told.st_ctime_ns}")
        if path.endswith("/"):
            seen.append(_stamp_within(os.path.join(root, path)))
    return " ".join(seen) or "none"


def _stamp_within(directory: str) -> str:
    """One word for all packages there: a new version of one is another time of its own directory alone."""
    try:
        with os.scandir(directory) as found:
            times = sorted((one.name, one.stat().st_mtime_ns) for one in found)
    except OSError:
        return ""
    return blake2b(repr(times).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def facts_of(root: str) -> Iterator[Fact]:
    """Every installed package."""
    for manager, paths in SOURCES.items():
        if any(os.path.exists(os.path.join(root, path)) for path in paths):
            module: Any = import_module(f"git_envhist.probes.{manager}")
            yield from module.installed(root)
