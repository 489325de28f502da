"""What a record says, as the manifest tells it: where its directory is stored, its shard, a digest of its modes."""

from __future__ import annotations

import hashlib
import stat

from git_envhist.capture.descent import DOT_GIT, below_realm, realm_of
from git_envhist.capture.records import MODE, MTIME, WIDTH, Record
from git_envhist.model import EnvPath
from git_envhist.store.layout import dotgit_directory, root_directory, stored_below
from git_envhist.store.manifest import OWN_NAME, format_line, join_shard

KINDS = {
    stat.S_IFREG: b"f",
    stat.S_IFLNK: b"l",
    stat.S_IFIFO: b"p",
    stat.S_IFSOCK: b"s",
    stat.S_IFCHR: b"c",
    stat.S_IFBLK: b"b",
}


def stored_directory(path: bytes) -> bytes:
    """Where the entries of a directory stand in a snapshot's tree."""
    realm, rest = realm_of(path), below_realm(path)
    if realm:
        return stored_below(root_directory(realm), EnvPath(rest))
    names = rest.split(b"/") if rest else []
    if DOT_GIT in names:
        at = names.index(DOT_GIT)
        nested = dotgit_directory(EnvPath(b"/".join(names[:at])))
        return stored_below(nested, EnvPath(b"/".join(names[at + 1 :])))
    return stored_below(b"", EnvPath(rest))


def shard_text(record: Record) -> bytes:
    """The manifest shard of a directory."""
    cells = record.cells
    modes, mtimes = cells[MODE::WIDTH], cells[MTIME::WIDTH]
    extras = record.extras
    lines = [
        (name, format_line(name, KINDS[stat.S_IFMT(mode)], mode & 0o7777, mtime, extras.get(index, b"")))
        for index, (name, mode, mtime) in enumerate(zip(record.names, modes, mtimes, strict=True))
    ]
    # A directory's line in its parent only names it: its attributes stand in its own shard, so that a change in it
    # writes one shard and not two.
    lines += [(name, format_line(name, b"d", 0, 0, b"")) for name in record.subdirectories]
    lines += [(name, format_line(name, b"w", 0, 0, b"")) for name in record.boundaries]
    lines.sort()
    own = format_line(OWN_NAME, b"d", record.mode & 0o7777, record.mtime_ns, record.extras.get(-1, b""))
    return join_shard(stored_directory(record.path), own, [line for _, line in lines])


def leaf_modes(record: Record) -> bytes:
    """A digest of the modes of a directory and its entries, and of what a tree does not hold of them."""
    digest = hashlib.sha256(b"%o\0" % record.mode)
    modes = record.cells[MODE::WIDTH]
    for index, (name, mode) in enumerate(zip(record.names, modes, strict=True)):
        digest.update(b"%b\0%o\0%b\0" % (name, mode, _fingerprint(record.extras.get(index, b""))))
    digest.update(b"\0".join(record.boundaries))
    return digest.digest()


def _fingerprint(extras: bytes) -> bytes:
    return extras if b" h=" in extras else b""
