"""Which hard links a restore has to make anew (pure).

Two snapshots number the same links differently once a restore made new files of them, so not numbers are compared
but which names are one file. Where that differs, or anything about the file does, all of its names are written anew:
to link to what is there would need nobody else to have a name of it, and to write to it everybody to agree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.model import Entry, EntryKind, EnvPath

Key = tuple[bytes, EnvPath]
"""A realm and a path in it."""


class LeafPair(NamedTuple):
    """What stands at a path on the two sides, where it is no directory."""

    before: Entry | None
    after: Entry | None


def same_content(before: Entry, after: Entry) -> bool:
    """Whether the bytes (or the pipe, the device) are the same."""
    return (
        before.kind is after.kind
        and before.oid == after.oid
        and before.stored is after.stored
        and before.device == after.device
    )


def same_metadata(before: Entry, after: Entry) -> bool:
    """Whether mode, time, owner and attributes are the same."""
    return (
        before.mtime_ns == after.mtime_ns
        and before.mode == after.mode
        and before.uid == after.uid
        and before.gid == after.gid
        and before.xattrs == after.xattrs
    )


def same(before: Entry, after: Entry) -> bool:
    return same_content(before, after) and same_metadata(before, after)


def link_class(entry: Entry) -> Hashable:
    """What the names of one file have in common; a capture may have met a file that was just being written."""
    return (entry.link_group, entry.kind, entry.mode, entry.mtime_ns, entry.uid, entry.gid, entry.xattrs)


def check_links(leaves: Mapping[Key, LeafPair]) -> None:
    """`Damaged` where the target says that a link and a file are one: whoever linked to the one would get the other."""
    check_kinds(leaf.after for leaf in leaves.values() if leaf.after is not None)


def check_kinds(entries: Iterable[Entry]) -> None:
    """The same, of the entries of the target."""
    kinds: dict[int, EntryKind] = {}
    for after in entries:
        if after.link_group is None:
            continue
        if kinds.setdefault(after.link_group, after.kind) is not after.kind:
            raise Damaged("a snapshot has hard links of things of two kinds", hint="restore another snapshot")


def links_to_renew(leaves: Mapping[Key, LeafPair]) -> set[Key]:
    """The names that must be written anew though each by itself may be as it was; given all that have links."""
    befores: dict[int, list[Key]] = {}
    classes: dict[Hashable, list[Key]] = {}
    for key, leaf in leaves.items():
        if leaf.before is not None and leaf.before.link_group is not None:
            befores.setdefault(leaf.before.link_group, []).append(key)
        if leaf.after is not None and leaf.after.link_group is not None:
            classes.setdefault(link_class(leaf.after), []).append(key)
    shared = {key for members in classes.values() if len(members) > 1 for key in members}
    renewed: set[Key] = set()
    for members in classes.values():
        if len(members) > 1 and not _stands_as_it_is(members, leaves, befores, shared):
            renewed.update(members)
    for members in befores.values():
        staying = [key for key in members if leaves[key].after is not None]
        if len(staying) > 1:
            renewed.update(key for key in staying if key not in shared)
    return renewed


def _stands_as_it_is(
    members: list[Key], leaves: Mapping[Key, LeafPair], befores: Mapping[int, list[Key]], shared: set[Key]
) -> bool:
    """Whether the names are one file already, unchanged, and no other name of the target is that file."""
    groups = set()
    for key in members:
        before, after = leaves[key]
        if before is None or after is None or before.link_group is None or not same(before, after):
            return False
        groups.add(before.link_group)
    if len(groups) != 1:
        return False
    others = set(befores[groups.pop()]).difference(members)
    # A name that shall be a file of its own is written anew itself; one of another group cannot be told apart so.
    return not others.intersection(shared)
