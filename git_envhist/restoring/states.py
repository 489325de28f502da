"""How two states of an environment differ that have the same content."""

from __future__ import annotations

from git_envhist.errors import EnvhistError
from git_envhist.history.cursor import Difference, State
from git_envhist.model import DirectoryListing, DirectoryPair, Entry
from git_envhist.restore.links import same_content
from git_envhist.store.contents import ObjectReader
from git_envhist.store.pairs import differing_directories, same_environment


class States:
    """Compare states by their manifests; each two of them once."""

    def __init__(self, contents: ObjectReader) -> None:
        self._contents = contents
        self._known: dict[tuple[str, str], Difference] = {}

    def __call__(self, one: State, other: State) -> Difference:
        """Return the difference; none where a snapshot cannot be read, as far as their contents say."""
        trees = (one.tree, other.tree)
        if trees not in self._known:
            try:
                self._known[trees] = self._compare(*map(bytes.fromhex, trees))
            except EnvhistError:
                self._known[trees] = Difference.NONE
        return self._known[trees]

    def _compare(self, one: bytes, other: bytes) -> Difference:
        if same_environment(self._contents, one, other):
            return Difference.NONE
        pairs = differing_directories(self._contents, one, other)
        return Difference.MORE if any(map(_differs, pairs)) else Difference.TIMES


def _differs(pair: DirectoryPair) -> bool:
    """Whether a directory or an entry of it differs in more than times and hard links."""
    if pair.before is None or pair.after is None:
        return True
    before, after = _entries(pair.before), _entries(pair.after)
    if before.keys() != after.keys():
        return True
    return any(not _is_like(entry, after[name]) for name, entry in before.items())


def _entries(listing: DirectoryListing) -> dict[bytes, Entry]:
    return {**listing.entries, b"": listing.own}


def _is_like(one: Entry, other: Entry) -> bool:
    owners = (one.uid, one.gid) == (other.uid, other.gid)
    return owners and same_content(one, other) and (one.mode, one.xattrs) == (other.mode, other.xattrs)
