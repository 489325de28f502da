"""Join two comparisons of directories into one (pure).

Several merges are planned as one restore: the second begins where the first ends, although no snapshot has that state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from git_envhist.model import DirectoryListing, DirectoryPair, Entry
from git_envhist.restore.plan_steps import Key
from git_envhist.restore.three_way import is_same

Pairs = Mapping[Key, DirectoryPair]


def by_key(pairs: Iterable[DirectoryPair]) -> dict[Key, DirectoryPair]:
    """Return directories by root and path."""
    return {(pair.root, pair.path): pair for pair in pairs}


def compose_pairs(first: Pairs, second: Pairs) -> dict[Key, DirectoryPair]:
    """Return the pairs from the beginning of the first comparison to the end of the second."""
    found: dict[Key, DirectoryPair] = {}
    for key in {**first, **second}:
        if key not in first or key not in second:
            found[key] = first[key] if key in first else second[key]
        else:
            found[key] = _compose(first[key], second[key])
    return {key: pair for key, pair in found.items() if pair.before is not None or pair.after is not None}


def _compose(first: DirectoryPair, second: DirectoryPair) -> DirectoryPair:
    before, after = _entries(first.before), _entries(second.after)
    # A name that a comparison does not list is equal on its two sides.
    known = {*_entries(first.before), *_entries(first.after)}
    before.update((name, entry) for name, entry in _entries(second.before).items() if name not in known)
    changed = {*_entries(second.before), *_entries(second.after)}
    after.update((name, entry) for name, entry in _entries(first.after).items() if name not in changed)
    return DirectoryPair(
        first.root,
        first.path,
        None if first.before is None else DirectoryListing(first.before.own, before),
        None if second.after is None else DirectoryListing(second.after.own, after),
    )


def without_changes(pairs: Pairs, ignored: Pairs) -> dict[Key, DirectoryPair]:
    """Return the pairs with their first side where the second is only what another comparison leads to."""
    return {key: _as_before(pair, ignored.get(key)) for key, pair in pairs.items()}


def as_unchanged(pairs: Pairs, ignored: Pairs) -> dict[Key, DirectoryPair]:
    """Return the pairs with their second side also as the first where it is what another comparison leads to."""
    return {key: _as_after(pair, ignored.get(key)) for key, pair in pairs.items()}


def _as_before(pair: DirectoryPair, ignored: DirectoryPair | None) -> DirectoryPair:
    names = _only_ignored(pair, ignored)
    if not names or pair.before is None or pair.after is None:
        return pair
    entries = {**pair.after.entries, **{name: pair.before.entries[name] for name in names}}
    return pair._replace(after=pair.after._replace(entries=entries))


def _as_after(pair: DirectoryPair, ignored: DirectoryPair | None) -> DirectoryPair:
    names = _only_ignored(pair, ignored)
    if not names or pair.before is None or pair.after is None:
        return pair
    entries = {**pair.before.entries, **{name: pair.after.entries[name] for name in names}}
    return pair._replace(before=pair.before._replace(entries=entries))


def _only_ignored(pair: DirectoryPair, ignored: DirectoryPair | None) -> list[bytes]:
    """Return the names whose change in this pair is the change of the ignored pair."""
    after, known, reached = _entries(pair.after), _entries(pair.before), ignored and ignored.after
    if not reached:
        return []
    return [
        name
        for name, entry in after.items()
        if name in known and name in reached.entries and is_same(entry, reached.entries[name])
    ]


def _entries(listing: DirectoryListing | None) -> dict[bytes, Entry]:
    return {} if listing is None else dict(listing.entries)
