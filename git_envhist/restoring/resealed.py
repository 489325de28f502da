"""Secret files that are what they were, and are sealed with another key now.

The same bytes sealed with two keys have nothing in common. A restore would write such a file anew, and once more the
next time, since what is here is always sealed with the key that is in use.
"""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.capture.seal import sealed_key_id
from git_envhist.errors import EnvhistError
from git_envhist.model import DirectoryPair, Entry, EnvPath, StoredAs, shown_path
from git_envhist.store.contents import ObjectReader
from git_envhist.values import replace


def as_sealed_then(pairs: Sequence[DirectoryPair], contents: ObjectReader) -> list[DirectoryPair]:
    """The pairs, with what holds the same under two keys called, on the side before, what it is called after."""
    return [_as_then(pair, contents) for pair in pairs]


def _as_then(pair: DirectoryPair, contents: ObjectReader) -> DirectoryPair:
    if pair.before is None or pair.after is None:
        return pair
    after, found = pair.after.entries, {}
    for name, one in pair.before.entries.items():
        other = after.get(name) if one.stored is StoredAs.SEALED else None
        if other is not None and _is_same(shown_path(pair.realm, one.path), one, other, contents):
            found[name] = replace(one, oid=other.oid)
    if not found:
        return pair
    return pair._replace(before=pair.before._replace(entries={**pair.before.entries, **found}))


def _is_same(shown: EnvPath, one: Entry, other: Entry, contents: ObjectReader) -> bool:
    if other.stored is not StoredAs.SEALED or one.oid is None or other.oid is None or one.oid == other.oid:
        return False
    try:
        blobs = contents.blob(one.oid), contents.blob(other.oid)
        if len(blobs[0]) != len(blobs[1]) or sealed_key_id(blobs[0]) == sealed_key_id(blobs[1]):
            # Under one key what differs differs.
            return False
        return contents.open_sealed(shown, blobs[0]) == contents.open_sealed(shown, blobs[1])
    except EnvhistError:
        # What cannot be opened, or read, is told of by whoever has to write it.
        return False
