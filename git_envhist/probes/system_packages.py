"""List the packages of the machine from its package managers.

The stat of each manager's list (or directories) is the stamp: nothing is read while it is unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from importlib import import_module
from itertools import chain
from typing import Any

from git_envhist.model import Fact

BREW_PREFIXES = ("opt/homebrew", "usr/local", "home/linuxbrew/.linuxbrew")
SOURCES = {
    "dpkg": ("var/lib/dpkg/status", "var/lib/apt/extended_states"),
    "apk": ("lib/apk/db/installed", "usr/lib/apk/db/installed", "etc/apk/world"),
    "rpm": (
        "var/lib/rpm/rpmdb.sqlite",
        "var/lib/rpm/rpmdb.sqlite-wal",
        "usr/lib/sysimage/rpm/rpmdb.sqlite",
        "usr/lib/sysimage/rpm/rpmdb.sqlite-wal",
    ),
    "brew": tuple(
        f"{prefix}/{directory}/" for prefix in BREW_PREFIXES for directory in ("Cellar", "Caskroom")
    ),
}
"""Manager -> files of its list; a trailing slash marks a directory with one entry per package."""


MAX_SIZE = 256 << 20


def read_list(path: str) -> str:
    """Return the text of a package manager's list; empty if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_SIZE).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def stamp(root: str) -> str:
    """Return the stats of all existing lists."""
    parts = []
    for path in chain(*SOURCES.values()):
        try:
            list_stat = os.stat(os.path.join(root, path))
        except OSError:
            continue
        parts.append(
            f"{path}:{list_stat.st_ino}:{list_stat.st_size}:{list_stat.st_mtime_ns}:{list_stat.st_ctime_ns}"
        )
        if path.endswith("/"):
            parts.append(_stamp_within(os.path.join(root, path)))
    return " ".join(parts) or "none"


def _stamp_within(directory: str) -> str:
    """Return a digest of the packages in a directory: a new version only changes its own subdirectory."""
    try:
        with os.scandir(directory) as found:
            times = sorted((one.name, one.stat().st_mtime_ns) for one in found)
    except OSError:
        return ""
    return blake2b(repr(times).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def facts_of(root: str) -> Iterator[Fact]:
    """Yield every installed package."""
    for manager, paths in SOURCES.items():
        if any(os.path.exists(os.path.join(root, path)) for path in paths):
            module: Any = import_module(f"git_envhist.probes.{manager}")
            yield from module.installed(root)
