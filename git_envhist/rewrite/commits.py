"""Rewrite the commits of a chain of snapshots with other predecessors, trees or trailers; ids stay (pure).

Everything else in a message stays byte for byte, including trailers of a later version. A snapshot is signed again
with the same key if that key is known and its signature was valid; otherwise it stays unsigned. Commits before the
first difference stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass, field
from git_envhist.model import SnapshotId
from git_envhist.model.snapshots import hashes_before_rewrites
from git_envhist.objects.commits import Commit, encode_commit, parse_commit
from git_envhist.secrets.keys import SigningKey, constant_time_equal
from git_envhist.snapshots.layout import ObjectSink
from git_envhist.snapshots.message import (
    FindKey,
    NewerFormat,
    mac_input,
    quote,
    read_message,
    split_mac,
    with_mac,
)
from git_envhist.snapshots.notes import NamedObjectReader

WAS = "Env-Was"
WERE = "Env-Were"
"""Hashes that plain git showed between the first commit and this one; users may have written them down."""
SHORT, MAX_WERE = 16, 60
AFTER, BEFORE = "Env-Dropped-After", "Env-Dropped-Before"
"""In the trash: the ids between which a snapshot was."""
NONE = "none"
KEY = "Env-Key"
LAST = (b"Env-Key: ",)
"""Trailers that must stay last."""


@dataclass(frozen=True, slots=True)
class ChainCommit:
    """One commit of a chain."""

    commit: str
    data: Commit
    id: SnapshotId
    timeline: str = ""
    key: str | None = None
    snapshot: bool = True
    """False for a commit that is not a snapshot; only its position is known."""
    content: str = ""
    partial: int = 0
    """The number of paths missing in it."""
    after: str | None = None
    before: str | None = None
    in_trash: bool = False

    @property
    def tree(self) -> str:
        return self.data.tree

    @property
    def parent(self) -> str | None:
        return self.data.parents[0] if self.data.parents else None


def read_chain_commit(commit: str, data: bytes) -> ChainCommit:
    """Parse a commit object. Raise `NewerFormat` for a snapshot of a later format: it must not be rewritten."""
    parsed = parse_commit(data)
    try:
        message = read_message(parsed.message)
    except NewerFormat:
        raise
    except Damaged:
        return ChainCommit(commit, parsed, SnapshotId(commit), snapshot=False)
    draft, others = message.draft, dict(message.others)
    return ChainCommit(
        commit,
        parsed,
        SnapshotId(draft.was or commit),
        draft.timeline,
        draft.key,
        True,
        draft.content,
        draft.missing_count,
        _id(others.get(AFTER)),
        _id(others.get(BEFORE)),
        AFTER in others or BEFORE in others,
    )


def _id(value: str | None) -> str | None:
    return None if value == NONE else value


def rewrite_commit(
    link: ChainCommit,
    parent: str | None,
    find_key: FindKey,
    *,
    tree: str | None = None,
    trailers: Mapping[str, str | None] | None = None,
    signer: SigningKey | None = None,
) -> bytes:
    """Return the commit object of a snapshot with another predecessor; a trailer of None is removed."""
    data, new_tree = link.data, tree or link.data.tree
    message = data.message
    if link.snapshot:
        bare, mac = split_mac(message)
        key = find_key(link.key) if mac is not None and link.key is not None else None
        is_ours = key is not None and constant_time_equal(
            key.mac(mac_input(data.tree, data.author, bare)), mac or ""
        )
        changes = {**(trailers or {}), WAS: link.id, WERE: _were_trailer(link, bare)}
        if key is not None and is_ours and signer is not None:
            key, changes = signer, {**changes, KEY: signer.id}
        message = with_trailers(bare, changes)
        if key is not None and is_ours:
            message = with_mac(message, key.mac(mac_input(new_tree, data.author, message)))
    return encode_commit(new_tree, parent, data.author, data.committer, message)


def _were_trailer(link: ChainCommit, bare: bytes) -> str | None:
    """Return the abbreviated earlier hashes of this commit, at most the newest MAX_WERE."""
    hashes = hashes_before_rewrites(bare)
    if link.commit != link.id:
        hashes = (*hashes, link.commit[:SHORT])
    return " ".join(hashes[-MAX_WERE:]) or None


def with_trailers(message: bytes, changes: Mapping[str, str | None]) -> bytes:
    """Return a message without MAC in which some trailers are replaced, added or removed."""
    whole = message.rstrip(b"\n")
    start = whole.rfind(b"\n\n") + 2
    lines = whole[start:].split(b"\n")
    for name, value in changes.items():
        opening = name.encode("ascii") + b": "
        new = [] if value is None else [opening + quote(value).encode("utf-8", "surrogateescape")]
        at = next((number for number, line in enumerate(lines) if line.startswith(opening)), None)
        if at is not None:
            lines[at : at + 1] = new
        else:
            end = next((number for number, line in enumerate(lines) if line.startswith(LAST)), len(lines))
            lines[end:end] = new
    return whole[:start] + b"\n".join(lines) + b"\n"


Trailers = Mapping[str, str | None]
Describe = Callable[[str | None, str], Trailers]
"""Returns the trailers about the predecessor, given the trees of both."""


@dataclass(frozen=True, slots=True)
class CommitChange:
    """A change to one snapshot."""

    tree: str
    trailers: Trailers = field(default_factory=dict)
    signer: SigningKey | None = None
    """The key that signs it from now on, if one of ours signed it."""


NOTHING: Mapping[str, CommitChange] = {}


def read_chain(reader: NamedObjectReader, tip: str | None) -> list[ChainCommit]:
    """Return the chain, oldest first, as far back as it can be read."""
    links: list[ChainCommit] = []
    following = tip
    while following is not None:
        answer = reader.read(following)
        if answer is None or answer.kind != "commit":
            if not links:
                raise Damaged(f"the newest snapshot cannot be read: '{following}'", hint="git envlog fsck")
            break
        links.append(read_chain_commit(following, answer.data))
        following = links[-1].parent
    return links[::-1]


def rewrite_chain(
    writer: ObjectSink,
    links: Sequence[ChainCommit],
    before: Mapping[str, str | None],
    find_key: FindKey,
    describe: Describe,
    changes: Mapping[str, CommitChange] = NOTHING,
    cut_off: str | None = None,
) -> dict[str, str]:
    """Write the chain in this order. Return the new commit of each old one.

    `before`: for each commit the id of the snapshot that its message describes as predecessor; `changes`: changes by
    commit; `cut_off`: a commit with an unreadable parent, which it keeps naming if it is still the first.
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
            trailers = dict(change.trailers) if change is not None else {}
            tree = change.tree if change is not None else link.tree
            follows = last.id if last is not None else None
            tree_before = None if last is None else _tree_of(last, changes)
            has_new_predecessor = before.get(link.commit, "") != follows or (
                last is not None and last.commit in changes
            )
            if link.snapshot and (has_new_predecessor or change is not None):
                trailers.update(describe(tree_before, tree))
            signer = change.signer if change is not None else None
            data = rewrite_commit(link, parent, find_key, tree=tree, trailers=trailers, signer=signer)
            now[link.commit] = writer.add(b"commit", data).hex()
        last = link
    return now


def _tree_of(link: ChainCommit, changes: Mapping[str, CommitChange]) -> str:
    change = changes.get(link.commit)
    return change.tree if change is not None else link.tree


def predecessors(links: Sequence[ChainCommit]) -> dict[str, str | None]:
    """Return the id of the snapshot before each commit, None for the first."""
    pairs = zip(links, [None, *links], strict=False)  # all of a timeline may be in the trash
    return {link.commit: earlier.id if earlier is not None else None for link, earlier in pairs}


def cut_off_in(links: Sequence[ChainCommit]) -> str | None:
    """Return the oldest commit of a chain if its parent cannot be read."""
    return links[0].commit if links and links[0].parent is not None else None
