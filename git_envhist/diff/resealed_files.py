"""Secret files that were sealed again with equal content are no change."""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.errors import EnvhistError
from git_envhist.lazy import replace
from git_envhist.model import DirectoryPair, Entry, EnvPath, StoredAs, shown_path
from git_envhist.objects.object_readers import ObjectReader

# Secret files with equal content that are sealed with different keys. The sealed bytes differ, so a restore would
# write such a file, and again the next time, because the working tree's files are always sealed with the current key.


def as_sealed_then(pairs: Sequence[DirectoryPair], contents: ObjectReader) -> list[DirectoryPair]:
    """Return the pairs with equal sealed files marked as equal: `before` gets the blob of `after`."""
    return [_as_then(pair, contents) for pair in pairs]


def _as_then(pair: DirectoryPair, contents: ObjectReader) -> DirectoryPair:
    if pair.before is None or pair.after is None:
        return pair
    after, found = pair.after.entries, {}
    for name, one in pair.before.entries.items():
        other = after.get(name) if one.stored is StoredAs.SEALED else None
        if other is not None and _is_same(shown_path(pair.root, one.path), one, other, contents):
            found[name] = replace(one, oid=other.oid)
    if not found:
        return pair
    return pair._replace(before=pair.before._replace(entries={**pair.before.entries, **found}))


def _is_same(shown: EnvPath, one: Entry, other: Entry, contents: ObjectReader) -> bool:
    from git_envhist.secrets.seal import sealed_key_id  # loaded late: only sealed files need it

    if other.stored is not StoredAs.SEALED or one.oid is None or other.oid is None or one.oid == other.oid:
        return False
    try:
        blobs = contents.blob(one.oid), contents.blob(other.oid)
        if len(blobs[0]) != len(blobs[1]) or sealed_key_id(blobs[0]) == sealed_key_id(blobs[1]):
            # With one key, equal content has equal blobs.
            return False
        return contents.open_sealed(shown, blobs[0]) == contents.open_sealed(shown, blobs[1])
    except EnvhistError:
        # Errors of reading or opening are reported when the file is written.
        return False
