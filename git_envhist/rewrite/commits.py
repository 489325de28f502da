"""A snapshot's commit, told anew: with another predecessor, another tree, other trailers; its id stays (pure).

Whatever the message says beside that stays byte for byte, also the trailers of a later version. It is signed again
where it was signed by a key that is here, and by that key; what none signed stays a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass, field
from git_envhist.model import SnapshotId
from git_envhist.model.snapshots import earlier_hashes
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
"""What plain git showed between the first commit and this one; people write such hashes down, too."""
SHORT, MAX_WERE = 16, 60
AFTER, BEFORE = "Env-Dropped-After", "Env-Dropped-Before"
"""In the trash: the ids between which a snapshot stood."""
NONE = "none"
KEY = "Env-Key"
LAST = (b"Env-Key: ",)
"""What stands behind all other trailers."""


@dataclass(frozen=True, slots=True)
class ChainCommit:
    """One commit of a chain, as it stands."""

    commit: str
    data: Commit
    id: SnapshotId
    timeline: str = ""
    key: str | None = None
    snapshot: bool = True
    """False: somebody else's commit, of which nothing is known but its place."""
    content: str = ""
    partial: int = 0
    """How many paths are missing in it."""
    after: str | None = None
    before: str | None = None
    in_trash: bool = False

    @property
    def tree(self) -> str:
        return self.data.tree

    @property
    def parent(self) -> str | None:
        return self.data.parents[0] if self.data.parents else None


def read_link(commit: str, data: bytes) -> ChainCommit:
    """The link that a commit object is; a snapshot of a later format is not ours to rewrite."""
    taken_apart = parse_commit(data)
    try:
        message = read_message(taken_apart.message)
    except NewerFormat:
        raise
    except Damaged:
        return ChainCommit(commit, taken_apart, SnapshotId(commit), snapshot=False)
    draft, others = message.draft, dict(message.others)
    return ChainCommit(
        commit,
        taken_apart,
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


def _id(told: str | None) -> str | None:
    return None if told == NONE else told


def rewrite_commit(
    link: ChainCommit,
    parent: str | None,
    find_key: FindKey,
    *,
    tree: str | None = None,
    trailers: Mapping[str, str | None] | None = None,
    signer: SigningKey | None = None,
) -> bytes:
    """The commit object of the same snapshot with another predecessor; None as a trailer takes it away."""
    data, new_tree = link.data, tree or link.data.tree
    message = data.message
    if link.snapshot:
        bare, mac = split_mac(message)
        key = find_key(link.key) if mac is not None and link.key is not None else None
        is_ours = key is not None and constant_time_equal(
            key.mac(mac_input(data.tree, data.author, bare)), mac or ""
        )
        told = {**(trailers or {}), WAS: link.id, WERE: _were(link, bare)}
        if key is not None and is_ours and signer is not None:
            key, told = signer, {**told, KEY: signer.id}
        message = with_trailers(bare, told)
        if key is not None and is_ours:
            message = with_mac(message, key.mac(mac_input(new_tree, data.author, message)))
    return encode_commit(new_tree, parent, data.author, data.committer, message)


def _were(link: ChainCommit, bare: bytes) -> str | None:
    """The hashes by which this commit was known, cut short; the newest of very many."""
    earlier = earlier_hashes(bare)
    if link.commit != link.id:
        earlier = (*earlier, link.commit[:SHORT])
    return " ".join(earlier[-MAX_WERE:]) or None


def with_trailers(message: bytes, changes: Mapping[str, str | None]) -> bytes:
    """The message, which has no MAC, with some trailers replaced, added, or taken away."""
    whole = message.rstrip(b"\n")
    start = whole.rfind(b"\n\n") + 2
    lines = whole[start:].split(b"\n")
    for name, value in changes.items():
        opening = name.encode("ascii") + b": "
        told = [] if value is None else [opening + quote(value).encode("utf-8", "surrogateescape")]
        at = next((number for number, line in enumerate(lines) if line.startswith(opening)), None)
        if at is not None:
            lines[at : at + 1] = told
        else:
            end = next((number for number, line in enumerate(lines) if line.startswith(LAST)), len(lines))
            lines[end:end] = told
    return whole[:start] + b"\n".join(lines) + b"\n"


# A chain of snapshots, linked anew: some of it let go, some put back, some with other trees.
#
# Commits before the first difference stay what they are. Each later one becomes a new commit that says what its first
# hash was; what it says of its predecessor is told anew where that is another one.

Trailers = Mapping[str, str | None]
Describe = Callable[[str | None, str], Trailers]
"""What a message says of its predecessor, given the trees of both."""


@dataclass(frozen=True, slots=True)
class CommitChange:
    """What is to be another in a snapshot."""

    tree: str
    trailers: Trailers = field(default_factory=dict)
    signer: SigningKey | None = None
    """The key that signs it from now on, where one of ours signed it."""


NOTHING: Mapping[str, CommitChange] = {}


def read_links(reader: NamedObjectReader, tip: str | None) -> list[ChainCommit]:
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
