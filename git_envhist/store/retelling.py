"""A snapshot's commit, told anew: with another predecessor, another tree, other trailers; its id stays (pure).

Whatever the message says beside that stays byte for byte, also the trailers of a later version. It is signed again
where it was signed by a key that is here, and by that key; what none signed stays a claim.
"""

from __future__ import annotations

from collections.abc import Mapping

from git_envhist.errors import Damaged
from git_envhist.model import SnapshotId
from git_envhist.model.moments import were_of
from git_envhist.store.commits import Commit, encode_commit, parse_commit
from git_envhist.store.mac import constant_time_equal
from git_envhist.store.message import NewerFormat, mac_input, read_message, split_mac, with_mac
from git_envhist.store.signatures import FindKey, SigningKey
from git_envhist.store.trailers import quote
from git_envhist.values import dataclass

WAS = "Env-Was"
WERE = "Env-Were"
"""What plain git showed between the first commit and this one; people write such hashes down, too."""
SHORT, MOST_WERE = 16, 60
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
    told = were_of(bare)
    if link.commit != link.id:
        told = (*told, link.commit[:SHORT])
    return " ".join(told[-MOST_WERE:]) or None


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
