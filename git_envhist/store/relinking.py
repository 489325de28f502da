"""A chain of snapshots, linked anew: some of it let go, some put back, some with other trees.

Commits before the first difference stay what they are. Each later one becomes a new commit that says what its first
hash was; what it says of its predecessor is told anew where that is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.store.objects import GitObject
from git_envhist.store.retelling import ChainCommit, read_link, rewrite_commit
from git_envhist.store.signatures import FindKey, SigningKey
from git_envhist.values import dataclass, field

Trailers = Mapping[str, str | None]
Describe = Callable[[str | None, str], Trailers]
"""What a message says of its predecessor, given the trees of both."""


class ObjectReader(Protocol):
    """Gives the object of a hash; None where there is none."""

    def read(self, name: str) -> GitObject | None: ...


class ObjectSink(Protocol):
    """Takes new objects, wherever they go."""

    def add(self, kind: bytes, data: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class CommitChange:
    """What is to be another in a snapshot."""

    tree: str
    trailers: Trailers = field(default_factory=dict)
    signer: SigningKey | None = None
    """The key that signs it from now on, where one of ours signed it."""


NOTHING: Mapping[str, CommitChange] = {}


def read_links(reader: ObjectReader, tip: str | None) -> list[ChainCommit]:
    """The chain, oldest first, as far back as it can be read."""
    links: list[ChainCommit] = []
    following = tip
    while following is not None:
        answer = reader.read(following)
        if answer is None or answer.kind != "commit":
            if not links:
                raise Damaged(f"the newest snapshot cannot be read: '{following}'", hint="git envlog fsck")
            break
        links.append(read_link(following, answer.data))
        following = links[-1].parent
    return links[::-1]


def relink(
    writer: ObjectSink,
    links: Sequence[ChainCommit],
    before: Mapping[str, str | None],
    find_key: FindKey,
    describe: Describe,
    changes: Mapping[str, CommitChange] = NOTHING,
    cut_off: str | None = None,
) -> dict[str, str]:
    """Write the chain in this order; the commit that each one is now, by the one that it was.

    `before`: by commit, the id of the snapshot that it says it follows; `changes`: by commit, what is another in it;
    `cut_off`: a commit whose parent cannot be read, and which goes on naming it where it still comes first.
    """
    now: dict[str, str] = {}
    last: ChainCommit | None = None
    for link in links:
        parent = now[last.commit] if last is not None else None
        change = changes.get(link.commit)
        if last is None and link.commit == cut_off:
            parent = link.parent
        if change is None and parent == link.parent:
            now[link.commit] = link.commit
        else:
            told = dict(change.trailers) if change is not None else {}
            tree = change.tree if change is not None else link.tree
            follows = last.id if last is not None else None
            tree_before = None if last is None else _tree_of(last, changes)
            is_told_anew = before.get(link.commit, "") != follows or (
                last is not None and last.commit in changes
            )
            if link.snapshot and (is_told_anew or change is not None):
                told.update(describe(tree_before, tree))
            signer = change.signer if change is not None else None
            data = rewrite_commit(link, parent, find_key, tree=tree, trailers=told, signer=signer)
            now[link.commit] = writer.add(b"commit", data).hex()
        last = link
    return now


def _tree_of(link: ChainCommit, changes: Mapping[str, CommitChange]) -> str:
    change = changes.get(link.commit)
    return change.tree if change is not None else link.tree


def predecessors(links: Sequence[ChainCommit]) -> dict[str, str | None]:
    """By commit, the id of the snapshot before it; None where a chain begins."""
    pairs = zip(links, [None, *links], strict=False)  # all of a timeline may be in the trash
    return {link.commit: earlier.id if earlier is not None else None for link, earlier in pairs}


def cut_off_in(links: Sequence[ChainCommit]) -> str | None:
    """The oldest commit of a chain, where the one before it cannot be read."""
    return links[0].commit if links and links[0].parent is not None else None
