"""Manifest shards of directory records: storage path, shard text, digest of modes.

A shard has one line per entry of a directory and a line for the directory itself. If few entries of a large
directory changed, their lines are replaced in the old shard instead of formatting all of them.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from git_envhist.errors import Damaged
from git_envhist.model import EnvPath
from git_envhist.paths import DOT_GIT, path_below_root, root_name_of
from git_envhist.snapshots.layout import dotgit_directory, root_directory, stored_below
from git_envhist.snapshots.manifest import OWN_NAME, format_line, join_shard
from git_envhist.worktree.stat_cache import DirectoryRecord

KINDS = {
    stat.S_IFREG: b"f",
    stat.S_IFLNK: b"l",
    stat.S_IFIFO: b"p",
    stat.S_IFSOCK: b"s",
    stat.S_IFCHR: b"c",
    stat.S_IFBLK: b"b",
}


def stored_directory(path: bytes) -> bytes:
    """Return the path of a directory in a snapshot's tree."""
    root, rest = root_name_of(path), path_below_root(path)
    if root:
        return stored_below(root_directory(root), EnvPath(rest))
    names = rest.split(b"/") if rest else []
    if DOT_GIT in names:
        at = names.index(DOT_GIT)
        nested = dotgit_directory(EnvPath(b"/".join(names[:at])))
        return stored_below(nested, EnvPath(b"/".join(names[at + 1 :])))
    return stored_below(b"", EnvPath(rest))


def shard_text(record: DirectoryRecord) -> bytes:
    """Return the manifest shard of a directory."""
    modes, mtimes = record.modes, record.mtimes
    extras = record.extras
    lines = [
        (name, format_line(name, KINDS[stat.S_IFMT(mode)], mode & 0o7777, mtime, extras.get(index, b"")))
        for index, (name, mode, mtime) in enumerate(zip(record.names, modes, mtimes, strict=True))
    ]
    # The attributes of a directory are in its own shard, not in the line in its parent, so that a change
    # writes only one shard.
    lines += [(name, format_line(name, b"d", 0, 0, b"")) for name in record.subdirectories]
    lines += [(name, format_line(name, b"w", 0, 0, b"")) for name in record.boundaries]
    lines.sort()
    return join_shard(stored_directory(record.path), own_line(record), [line for _, line in lines])


def shard_of(
    record: DirectoryRecord,
    like: DirectoryRecord | None,
    fresh: Collection[int],
    read: Callable[[bytes], bytes],
) -> bytes:
    """Return the shard of a directory, patched from an older shard if most entries are unchanged."""
    if like is not None and 4 * len(fresh) <= len(record.names):
        with suppress(KeyError, Damaged):
            return patched_shard(read(like.shard), record, fresh) or shard_text(record)
    return shard_text(record)


def patched_shard(old: bytes, record: DirectoryRecord, fresh: Iterable[int]) -> bytes | None:
    """Return `old` with the lines of some entries and the directory's own line replaced; None if it does not
    fit."""
    header, _, rest = old.partition(b"\n")
    own, _, _ = rest.partition(b"\n")
    if header + b"\n" != join_shard(stored_directory(record.path), b"", ()) or not own.startswith(
        OWN_NAME + b" "
    ):
        return None
    cuts = [(len(header) + 1, len(header) + len(own) + 2, own_line(record))]
    modes, mtimes = record.modes, record.mtimes
    # Lines and entries are sorted, so the search continues from the last match.
    at = 0
    for index in sorted(fresh):
        line = leaf_line(record, index, modes[index], mtimes[index])
        # Names are quoted, so a line feed followed by "name " matches a whole name.
        at = old.find(b"\n" + line[: line.index(b" ") + 1], at)
        if at < 0:
            return None
        cuts.append((at + 1, old.index(b"\n", at + 1) + 1, line))
    return replaced(old, cuts)


def own_line(record: DirectoryRecord) -> bytes:
    """Return the directory's own line."""
    return format_line(OWN_NAME, b"d", record.mode & 0o7777, record.mtime_ns, record.extras.get(-1, b""))


def leaf_line(record: DirectoryRecord, index: int, mode: int, mtime: int) -> bytes:
    """Return the line of one entry."""
    kind = KINDS[stat.S_IFMT(mode)]
    return format_line(record.names[index], kind, mode & 0o7777, mtime, record.extras.get(index, b""))


def replaced(data: bytes, cuts: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Return `data` with the given (start, end, new bytes) ranges replaced."""
    parts: list[bytes] = []
    last = 0
    for start, end, new in sorted(cuts):
        parts += (data[last:start], new)
        last = end
    return b"".join((*parts, data[last:]))


def leaf_modes(record: DirectoryRecord) -> bytes:
    """Return a digest of the modes of a directory and its entries, and of attributes that a tree cannot hold."""
    digest = hashlib.sha256(b"%o\0" % record.mode)
    for names in (record.names, record.boundaries):
        digest.update(b"%d\0%b\0" % (len(names), b"\0".join(names)))
    digest.update(record.modes.tobytes())
    hashed = sorted(item for item in record.extras.items() if b" h=" in item[1])
    digest.update(b"".join(b"%d %b\0" % item for item in hashed))
    return digest.digest()
