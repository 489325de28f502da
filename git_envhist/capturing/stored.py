"""The entries of a directory as its tree holds them."""

from __future__ import annotations

from git_envhist.capture.descent import DOT_GIT, REALM_MARK, join
from git_envhist.capture.records import BELOW, DirectoryRecord
from git_envhist.capturing.shards import stored_directory
from git_envhist.store.snapshots import DIRECTORY, TreeEntry, leaf_entries


def entries_of(record: DirectoryRecord, width: int) -> list[TreeEntry]:
    """What the tree of a directory holds."""
    ids = [record.ids[at : at + width] for at in range(0, len(record.ids), width)]
    entries = leaf_entries(record.names, record.modes, ids, top=not record.path)
    for number, name in enumerate(record.subdirectories):
        entries += subtree(record.path, name, record.below[number * BELOW :][:width])
    return entries


def leaf_entry(record: DirectoryRecord, index: int, mode: int, oid: bytes) -> list[TreeEntry]:
    """The entry of a file or link, if there is one."""
    return leaf_entries([record.names[index]], [mode], [oid], top=not record.path)


def subtree(directory: bytes, name: bytes, tree: bytes) -> list[TreeEntry]:
    """The entry of a subdirectory, if there is one."""
    path = join(directory, name)
    if not any(tree) or is_stored_outside_tree(path):
        return []
    return [(stored_directory(path).rpartition(b"/")[2], DIRECTORY, tree)]


def is_stored_outside_tree(path: bytes) -> bool:
    """Whether a directory is the `.git` of a nested repository, or the top of a further root."""
    if path.startswith(REALM_MARK):
        return b"/" not in path
    return path.endswith(b"/" + DOT_GIT) and DOT_GIT not in path.split(b"/")[:-1]


def is_inside_git_directory(path: bytes) -> bool:
    """Whether a directory is the `.git` of a nested repository, or stands in one."""
    return not path.startswith(REALM_MARK) and DOT_GIT in path.split(b"/")
