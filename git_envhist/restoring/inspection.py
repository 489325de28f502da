"""Inspect the whole of an unsigned snapshot before anything is planned; nothing is written.

A link is judged by all the links that come with it, a directory by all that will be in it: what comes, and what exists
at its place already.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from git_envhist.errors import SealingError
from git_envhist.model import DirectoryPair, Entry, EntryKind, EnvPath, ObjectId, StoredAs, shown_path
from git_envhist.restoring.budget import BUDGET, UNBOUNDED, LimitedReader, check_sizes, gather
from git_envhist.restoring.foreign import DEVICES, Findings, Key, Owner
from git_envhist.restoring.gitdirs import (
    POINTS_AWAY,
    Standing,
    git_skip_reason,
    is_config,
    is_pointer,
    nothing_exists,
    reduced_config,
    repositories,
)
from git_envhist.restoring.obeyed import JJ_TARGETS
from git_envhist.restoring.outward import LONGEST_TARGET, NO_PATH, why_unsafe
from git_envhist.store.contents import ObjectReader
from git_envhist.store.git import Git
from git_envhist.store.pairs import differing_directories
from git_envhist.store.sizes import HeaderReader
from git_envhist.store.trees import object_id

NO_KEY = "it is sealed, and no key here opens it"
UNTOLD = 16 << 30
"""So many bytes may come from elsewhere to where nobody says how much room there is."""
LARGEST_CONFIG = 1 << 20


def inspect(
    git: Git,
    contents: ObjectReader,
    tree: str,
    *,
    room: int,
    force: bool,
    links: bool = True,
    standing: Standing = nothing_exists,
) -> tuple[list[DirectoryPair], Findings]:
    """Return every directory of a snapshot and the findings; `Damaged` or `Refused` if there is too much.

    `room`: bytes that fit; `force`: no limits, and with `links` these may lead anywhere; `standing`: names that exist
    at the place to restore to.
    """
    budget = UNBOUNDED if force else BUDGET
    with closing(HeaderReader(git)) as sizes:
        pairs = gather(
            differing_directories(LimitedReader(contents, sizes), None, bytes.fromhex(tree)), budget
        )
        check_sizes(pairs, contents, sizes, budget, room)
        look = _Inspection(git, contents, sizes, pairs, standing)
        dropped = dict(look.dropped(unsafe_links=force and links))
        configs = dict(look.configs(dropped))
    return pairs, Findings(dropped, configs, Owner(os.geteuid(), os.getegid()))


class _Inspection:
    def __init__(
        self,
        git: Git,
        contents: ObjectReader,
        sizes: HeaderReader,
        pairs: list[DirectoryPair],
        standing: Standing,
    ) -> None:
        self._git = git
        self._contents = contents
        self._sizes = sizes
        self._pairs = pairs
        self._repositories = repositories(pairs, standing)

    def dropped(self, *, unsafe_links: bool) -> Iterator[tuple[EnvPath, str]]:
        """(path as people see it, why) of all that is not brought."""
        targets = self._targets()
        for realm, entry in _entries(self._pairs):
            why = git_skip_reason(realm, entry, self._repositories) or self._why_not(realm, entry)
            if why is None and entry.kind is EntryKind.LINK:
                why = why_unsafe(entry.path, targets.get(realm, {}))
                if unsafe_links and why != NO_PATH:
                    why = None
            if why is not None:
                yield shown_path(realm, entry.path), why

    def configs(self, dropped: Mapping[EnvPath, str]) -> Iterator[tuple[Key, tuple[ObjectId, bytes]]]:
        """What the configuration of each repository is reduced to, where that is less."""
        for realm, entry in _entries(self._pairs):
            if is_config(realm, entry, self._repositories) and shown_path(realm, entry.path) not in dropped:
                data = self._bytes(realm, entry)
                reduced = reduced_config(self._list(data or b""))
                if reduced != data and entry.oid is not None:
                    oid = object_id(b"blob", reduced, "sha1" if len(entry.oid) == 20 else "sha256")
                    yield (realm, entry.path), (oid, reduced)

    def _targets(self) -> dict[bytes, dict[bytes, bytes]]:
        links = [(realm, entry) for realm, entry in _entries(self._pairs) if entry.kind is EntryKind.LINK]
        known = self._sizes.of_many(entry.oid for _, entry in links if entry.oid is not None)
        found: dict[bytes, dict[bytes, bytes]] = {}
        for realm, entry in links:
            target = b""
            if (
                entry.oid is not None
                and entry.stored is StoredAs.PLAIN
                and known[entry.oid].size <= LONGEST_TARGET
            ):
                target = self._contents.blob(entry.oid)
            found.setdefault(realm, {})[entry.path] = target
        return found

    def _why_not(self, realm: bytes, entry: Entry) -> str | None:
        if entry.kind in DEVICES:
            return f"{DEVICES[entry.kind]} is not taken over"
        if is_pointer(entry) and (self._bytes(realm, entry) or b"").strip() not in JJ_TARGETS:
            return POINTS_AWAY
        if entry.stored is StoredAs.SEALED and entry.oid is not None and self._bytes(realm, entry) is None:
            return NO_KEY
        return None

    def _bytes(self, realm: bytes, entry: Entry) -> bytes | None:
        """The bytes of a file that is to be looked into; None where they cannot be had, or are too many."""
        if entry.oid is None or entry.stored not in (StoredAs.PLAIN, StoredAs.SEALED):
            return None
        if entry.stored is StoredAs.PLAIN and self._sizes.of(entry.oid).size > LARGEST_CONFIG:
            return None
        blob = self._contents.blob(entry.oid)
        if entry.stored is StoredAs.PLAIN:
            return blob
        try:
            return self._contents.open_sealed(shown_path(realm, entry.path), blob)
        except SealingError:
            return None

    def _list(self, config: bytes) -> bytes:
        """git reads it, so that it means here what it would mean there; nothing in it is followed or run."""
        listed = self._git.try_run("config", "--file", "-", "--no-includes", "--null", "--list", stdin=config)
        return listed.out if listed.status == 0 else b""


def _entries(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, Entry]]:
    for pair in pairs:
        for entry in pair.after.entries.values() if pair.after is not None else ():
            yield pair.realm, entry


def room_at(directory: str) -> int:
    """How many bytes the file system of a place, or of the next directory above it, still has."""
    found = os.statvfs(nearest_directory(directory))
    # One that has no size, or does not tell of it, says zero of everything.
    return found.f_bavail * found.f_frsize if found.f_blocks else UNTOLD


def names_in(bases: Mapping[bytes, bytes]) -> Standing:
    """Return a function that lists a directory of the environment; no name if it cannot be listed."""

    def listed(realm: bytes, path: bytes) -> list[bytes]:
        base = bases.get(realm)
        if base is None:
            return []
        try:
            return os.listdir(os.path.join(base, path) if path else base)
        except OSError:
            return []

    return listed


def nearest_directory(place: str) -> str:
    """A place, or the next directory above it that is there."""
    place = os.path.abspath(place)
    while not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place)
    return place
