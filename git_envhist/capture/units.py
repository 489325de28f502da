"""Files that are only worth something together: a SQLite database with its log or journal."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

from git_envhist.capture.databases import LOG, SHARED_MEMORY, SIDECARS, base_of, is_database, is_sidecar
from git_envhist.capture.reading import FileVanished, KindChanged, Unreadable, open_file
from git_envhist.capture.records import MODE, SIZE
from git_envhist.capture.visits import ScannedDirectory, ScannedEntry


def find_database_files(visit: ScannedDirectory) -> None:
    """Set databases with sidecars apart from what is read file by file; called with their directory entered.

    The shared memory of a log holds no data, and is no entry.
    """
    if not visit.names_end_with(SIDECARS):
        return
    sidecars = [leaf for leaf in visit.leaves if base_of(leaf.name) is not None]
    by_name = {leaf.name: leaf for leaf in visit.leaves}
    units: dict[bytes, list[ScannedEntry]] = {}
    bases = _databases(by_name, sidecars)
    for leaf in sidecars:
        base = by_name.get(base_of(leaf.name) or b"")
        if base is None or base.name not in bases:
            continue
        if leaf.name.endswith(SHARED_MEMORY):
            visit.drop([leaf])
            if leaf in visit.unread:
                visit.unread.remove(leaf)
        else:
            leaf.grows = leaf.name.endswith(LOG)
            units.setdefault(base.name, []).append(leaf)
    for name, belonging in units.items():
        _set_apart(visit, by_name[name], belonging)


def _set_apart(visit: ScannedDirectory, database: ScannedEntry, sidecars: list[ScannedEntry]) -> None:
    members = [database, *sidecars]
    # Whatever is still to be read brings the others along: they are true for one moment only together.
    if not any(leaf.waits for leaf in members):
        return
    visit.unread = [leaf for leaf in visit.unread if leaf not in members]
    visit.units.append((database, sidecars))


def _databases(by_name: dict[bytes, ScannedEntry], sidecars: list[ScannedEntry]) -> set[bytes]:
    """The names of the databases that sidecars belong to; an encrypted one is known by these alone."""
    found: set[bytes] = set()
    for leaf in sidecars:
        base = by_name.get(base_of(leaf.name) or b"")
        if base is None or base.name in found or not stat.S_ISREG(base.row[MODE]):
            continue
        if _answers(base, is_database, base.row[SIZE]) or _answers(leaf, is_sidecar, leaf.name):
            found.add(base.name)
    return found


def _answers(leaf: ScannedEntry, question: Callable[[int, Any], bool], hint: object) -> bool:
    """What is to be said of an open file; no, where it cannot be opened."""
    try:
        descriptor = open_file(leaf.name)
    except (FileVanished, Unreadable, KindChanged):
        return False
    try:
        return question(descriptor, hint)
    finally:
        os.close(descriptor)
