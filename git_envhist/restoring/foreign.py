"""What becomes of a snapshot that no key of ours signed before a plan is made of it (pure).

What it says about owners, privileges and repositories is somebody else's word: it is reduced to what a directory of
plain files needs, and everything that is not brought, or is brought otherwise, is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.model import (
    DirectoryListing,
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    ObjectId,
    RestorePlan,
    SkippedPath,
    StoredAs,
    shown_path,
)
from git_envhist.restore.plan import PlanRules
from git_envhist.values import replace

DEVICES = {
    EntryKind.SOCKET: "a socket",
    EntryKind.CHARACTER_DEVICE: "a device",
    EntryKind.BLOCK_DEVICE: "a device",
}
PRIVILEGES = 0o7000
WORLD_WRITABLE = 0o002
SPACES = (b"security.", b"trusted.", b"system.")
"""Attributes that grant something, or that only an administrator sets."""

MODE = "its mode was not taken over"
ATTRIBUTES = "attributes were not taken over"
CONFIG = "its configuration was reduced to the form of the repository"
OWNERS = "owners were not taken over: all of it is yours"

Key = tuple[bytes, EnvPath]


class Owner(NamedTuple):
    """To whom everything will belong."""

    uid: int
    gid: int


class Findings(NamedTuple):
    """What was found in somebody else's snapshot."""

    dropped: Mapping[EnvPath, str]
    """Paths, as people see them, that are not brought, with all below them."""
    configs: Mapping[Key, tuple[ObjectId, bytes]]
    """Configurations of repositories: what each was reduced to."""
    owner: Owner

    @property
    def blobs(self) -> dict[bytes, bytes]:
        """The bytes that are in no snapshot."""
        return dict(self.configs.values())

    def rules(self, rules: PlanRules) -> PlanRules:
        """The rules of a plan, and what is not brought."""

        def keep(path: EnvPath, directory: bool) -> str | None:
            why = rules.keep(path, directory)
            return why if why is not None else self.dropped.get(path)

        return replace(rules, keep=keep)

    def sanitised(self, pair: DirectoryPair) -> DirectoryPair:
        """A directory as it may come."""
        if pair.after is None:
            return pair
        own = self._entry(pair.realm, pair.after.own)
        entries = {name: self._entry(pair.realm, entry) for name, entry in pair.after.entries.items()}
        return pair._replace(after=DirectoryListing(own, entries))

    def losses(self, plan: RestorePlan, pairs: Iterable[DirectoryPair]) -> Iterator[SkippedPath]:
        """What a plan does not bring, or brings otherwise, because of whose word it is; `pairs`: as they were told."""
        for left in plan.left_alone:
            if self.dropped.get(left.path) == left.why:
                yield left
        brought = _brought(plan)
        others = False
        for realm, entry in _told(pairs):
            shown = shown_path(realm, entry.path)
            if shown in brought:
                others = others or (entry.uid, entry.gid) != self.owner
                yield from (SkippedPath(shown, why) for why in self._changes(realm, entry))
        if others:
            yield SkippedPath(EnvPath(b""), OWNERS)

    def _changes(self, realm: bytes, entry: Entry) -> Iterator[str]:
        now = self._entry(realm, entry)
        if now.oid != entry.oid:
            yield CONFIG
        elif now.mode != entry.mode and entry.kind is not EntryKind.LINK:
            yield MODE
        if now.xattrs != entry.xattrs:
            yield ATTRIBUTES

    def _entry(self, realm: bytes, entry: Entry) -> Entry:
        oid, _ = self.configs.get((realm, entry.path), (entry.oid, b""))
        mode, xattrs = safe_mode(entry), tuple(x for x in entry.xattrs if not x[0].startswith(SPACES))
        if oid != entry.oid:
            return replace(
                entry, oid=oid, stored=StoredAs.PLAIN, mode=0o644, xattrs=xattrs, link_group=None,
                uid=self.owner.uid, gid=self.owner.gid,
            )  # fmt: skip
        return replace(entry, mode=mode, xattrs=xattrs, uid=self.owner.uid, gid=self.owner.gid)


def safe_mode(entry: Entry) -> int:
    """The mode without what it would grant to others than its owner."""
    if entry.kind is EntryKind.LINK:
        return entry.mode
    mode = entry.mode & ~(PRIVILEGES | WORLD_WRITABLE)
    # Nobody shall need to be an administrator to get rid of it.
    return mode | 0o700 if entry.kind is EntryKind.DIRECTORY else mode


def executables(plan: RestorePlan) -> tuple[EnvPath, ...]:
    """The files of a plan that can be run and are new or changed."""
    found = []
    for step in plan.steps:
        was = step.before is not None and bool(step.before.mode & 0o111) and step.before.oid
        if step.after is not None and _runs(step.after) and was != step.after.oid:
            found.append(step.shown)
        found += [shown_path(step.realm, entry.path) for entry in step.below if _runs(entry)]
    return tuple(found)


def _runs(entry: Entry) -> bool:
    return entry.kind is EntryKind.FILE and bool(entry.mode & 0o111)


def _told(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, Entry]]:
    """(realm, entry) of everything; of a directory what it says itself."""
    for pair in pairs:
        if pair.after is not None:
            yield pair.realm, pair.after.own
            for entry in pair.after.entries.values():
                if entry.kind is not EntryKind.DIRECTORY:
                    yield pair.realm, entry


def _brought(plan: RestorePlan) -> set[EnvPath]:
    found = set()
    for step in plan.steps:
        if step.after is not None:
            found.add(step.shown)
        found.update(shown_path(step.realm, entry.path) for entry in step.below)
    found.update(
        shown_path(directory.realm, directory.path)
        for directory in plan.directories
        if directory.after is not None
    )
    return found
