"""Keep extended attributes that the snapshot of the target could not read.

A snapshot lists a path as missing (`attributes`) if some of its attributes could not be read. Which ones existed then
is unknown, so a restore sets those that the snapshot has and removes none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from git_envhist.model import DirectoryListing, DirectoryPair, Entry, EnvPath, shown_path
from git_envhist.values import replace


def keeping_unread(pairs: Sequence[DirectoryPair], unread: Collection[EnvPath]) -> list[DirectoryPair]:
    """Return the pairs; entries with unread attributes have those of the side before as well."""
    return [_keeping(pair, unread) for pair in pairs] if unread else list(pairs)


def _keeping(pair: DirectoryPair, unread: Collection[EnvPath]) -> DirectoryPair:
    if pair.before is None or pair.after is None:
        return pair
    own = _joined(pair.realm, pair.before.own, pair.after.own, unread)
    known = pair.before.entries
    entries = {
        name: _joined(pair.realm, known[name], entry, unread) if name in known else entry
        for name, entry in pair.after.entries.items()
    }
    return pair._replace(after=DirectoryListing(own, entries))


def _joined(realm: bytes, before: Entry, after: Entry, unread: Collection[EnvPath]) -> Entry:
    if before.kind is not after.kind or shown_path(realm, after.path) not in unread:
        return after
    return replace(after, xattrs=tuple(sorted({**dict(before.xattrs), **dict(after.xattrs)}.items())))
