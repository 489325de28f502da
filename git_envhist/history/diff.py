"""What counts as a change between two moments, and how many there are (pure).

This is the one definition; a capture that counts from its scan and a comparison that reads two trees agree on it:

- One path that differs is one change. A path differs where its kind, its twelve mode bits, its bytes, the way they
  are stored, its owner, its extended attributes or its device number do. Times and hard links are no difference.
- A path that is not a directory is added, removed or modified; it exists where the manifest names it, also if its
  bytes could not be had. A change of its kind is one modification.
- A directory is added or removed only where it is empty on the side on which it stands alone: any other is told by
  what is in it. It is modified where its mode, its owner or its extended attributes differ. The top is never added
  or removed.
- The `.git` of a nested repository is one path, whatever differs in it.
- What the later side says it could not capture, and all below it, is not removed: nothing is known of it.
- What is kept beside the environment (facts, attachments, the staged tree) is no path.
"""

from __future__ import annotations

from collections.abc import Iterable

from git_envhist.model import Change, ChangeCount, ChangeKind, ChangeSide, EntryKind, StoredAs


def count(changes: Iterable[Change]) -> ChangeCount:
    """How many paths were added, modified and removed; a rename is one of each of the outer two."""
    added = modified = removed = 0
    for change in changes:
        kind = change.kind
        added += kind in (ChangeKind.ADDED, ChangeKind.RENAMED)
        removed += kind in (ChangeKind.REMOVED, ChangeKind.RENAMED)
        modified += kind in (ChangeKind.MODIFIED, ChangeKind.TYPE)
    return ChangeCount(added, modified, removed)


def has_other_bytes(change: Change) -> bool:
    """Whether the content differs, not only what is said of it."""
    before, after = change.before, change.after
    if before is None or after is None:
        return True
    return (before.oid, before.stored, before.kind) != (after.oid, after.stored, after.kind)


def is_nested_repository(change: Change) -> bool:
    """Whether this is the `.git` of a nested repository."""
    side = change.after or change.before
    return side is not None and side.kind is EntryKind.DIRECTORY and side.oid is not None


def is_stored(change: Change, stored: StoredAs) -> bool:
    """Whether the bytes of either side are kept that way."""
    return any(side is not None and side.stored is stored for side in (change.before, change.after))


def sides(change: Change) -> tuple[ChangeSide, ...]:
    """The sides that there are, the earlier one first."""
    return tuple(side for side in (change.before, change.after) if side is not None)
