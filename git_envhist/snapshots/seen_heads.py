"""The newest signed head that was seen of each fetched timeline: what a server must not fall behind.

One line per timeline, in the repository of what was fetched:
`<remote>/<timeline> <number> <sha256 of the signed lines> <tip> key|ssh <quoted signer>`.
"""

from __future__ import annotations

import hashlib
import os

from git_envhist.disk import Durability, replace_file
from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass
from git_envhist.snapshots.fetched import FetchedStore
from git_envhist.snapshots.heads import Head
from git_envhist.snapshots.quoting import quote, unquote

FILE = "heads"
BY_KEY, BY_SSH = "key", "ssh"


@dataclass(frozen=True, slots=True)
class Seen:
    """A head whose signature was verified."""

    number: int
    digest: str
    tip: str
    how: str
    """`key` or `ssh`."""
    signer: str

    @classmethod
    def of(cls, head: Head, how: str, signer: str) -> Seen:
        return cls(head.number, digest_of(head), head.tip, how, signer)


def digest_of(head: Head) -> str:
    """Return the hash of what is signed."""
    return hashlib.sha256(head.text.encode("ascii")).hexdigest()


def read_seen(fetched: str) -> dict[str, Seen]:
    """Return the heads that were seen, by the names of the timelines here; what cannot be read is left out."""
    found: dict[str, Seen] = {}
    try:
        with open(os.path.join(fetched, FILE), "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return found
    for line in lines:
        words = line.split(b" ")
        if len(words) == 6 and words[1].isdigit():
            try:
                name, signer = os.fsdecode(words[0]), os.fsdecode(unquote(words[5]))
                digest, tip, how = (word.decode("ascii") for word in words[2:5])
            except (Damaged, ValueError):
                continue
            found[name] = Seen(int(words[1]), digest, tip, how, signer)
    return found


def vouched_by_ssh(fetched: FetchedStore, timeline: str) -> frozenset[str]:
    """Return the commits that a verified SSH signature covers: its tip, and all before it."""
    seen = read_seen(fetched.path).get(timeline)
    if seen is None or seen.how != BY_SSH:
        return frozenset()
    told = fetched.git.ask("rev-list", "--first-parent", "--end-of-options", seen.tip)
    return frozenset(told.out.decode("ascii").split()) if told.status == 0 else frozenset()


def write_seen(fetched: str, seen: dict[str, Seen]) -> None:
    """Remember the heads that were seen."""
    lines = [
        b"%b %d %b %b %b %b\n"
        % (
            os.fsencode(name),
            one.number,
            one.digest.encode("ascii"),
            one.tip.encode("ascii"),
            one.how.encode("ascii"),
            quote(os.fsencode(one.signer)),
        )
        for name, one in sorted(seen.items())
    ]
    replace_file(os.path.join(fetched, FILE), b"".join(lines), durability=Durability.FULL)
