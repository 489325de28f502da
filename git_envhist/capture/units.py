"""Files that are only worth something together: a SQLite database with its log or journal, a PostgreSQL cluster."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from git_envhist.capture.databases import LOG, SHARED_MEMORY, base_of, is_database
from git_envhist.capture.reading import OtherKind, Unreadable, Vanished, open_file
from git_envhist.capture.records import MODE, SIZE
from git_envhist.capture.scan import Leaf, Visit
from git_envhist.model import WhyMissing

CLUSTER_MARK, CLUSTER_LOCK = b"PG_VERSION", b"postmaster.pid"


def find_units(visit: Visit) -> None:
    """Set databases with sidecars apart from what is read file by file; called with their directory entered.

    The shared memory of a log holds no data, and is no entry.
    """
    sidecars = [leaf for leaf in visit.leaves if base_of(leaf.name) is not None]
    if not sidecars:
        return
    by_name = {leaf.name: leaf for leaf in visit.leaves}
    units: dict[bytes, list[Leaf]] = {}
    for leaf in sidecars:
        base = by_name.get(base_of(leaf.name) or b"")
        if base is None or not _is_database(base):
            continue
        if leaf.name.endswith(SHARED_MEMORY):
            visit.leaves.remove(leaf)
            if leaf in visit.unread:
                visit.unread.remove(leaf)
        else:
            leaf.grows = leaf.name.endswith(LOG)
            units.setdefault(base.name, []).append(leaf)
    for name, belonging in units.items():
        _set_apart(visit, by_name[name], belonging)


def tell_running_cluster(visit: Visit) -> None:
    """Say so where a PostgreSQL server runs on the files: read one by one they are no state of its databases."""
    names = {leaf.name for leaf in visit.leaves}
    if CLUSTER_MARK not in names or CLUSTER_LOCK not in names:
        return
    with suppress(OSError, ValueError):
        with open(CLUSTER_LOCK, "rb") as file:
            server = int(file.readline())
        os.kill(server, 0)
        visit.miss(
            b"", WhyMissing.UNSTABLE, f"PostgreSQL runs on it (process {server}): a dump holds its state"
        )


def _set_apart(visit: Visit, database: Leaf, sidecars: list[Leaf]) -> None:
    members = [database, *sidecars]
    # Whatever is still to be read brings the others along: they are true for one moment only together.
    if not any(leaf.stat is not None for leaf in members):
        return
    visit.unread = [leaf for leaf in visit.unread if leaf not in members]
    visit.units.append((database, sidecars))


def _is_database(leaf: Leaf) -> bool:
    if not stat.S_ISREG(leaf.row[MODE]):
        return False
    try:
        descriptor = open_file(leaf.name)
    except (Vanished, Unreadable, OtherKind):
        return False
    try:
        return is_database(descriptor, leaf.row[SIZE])
    finally:
        os.close(descriptor)
