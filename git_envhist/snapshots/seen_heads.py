"""Remember the newest signed head of each fetched timeline, so that a server cannot roll it back unnoticed.

One line per timeline in the repository of fetched timelines:
`<remote>/<timeline> <number> <sha256 of the signed lines> <tip> key|ssh <quoted signer>`.
"""

from __future__ import annotations

import hashlib
import os

from git_envhist.disk import Durability, replace_file
from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass
from git_envhist.snapshots.fetched_store import FetchedStore
from git_envhist.snapshots.heads import Head
from git_envhist.snapshots.quoting import quote, unquote

FILE = "heads"
BY_KEY, BY_SSH = "key", "ssh"


@dataclass(frozen=True, slots=True)
class SeenHead:
    """A head with a verified signature."""

    number: int
    digest: str
    tip: str
    how: str
    """`key` or `ssh`."""
    signer: str

    @classmethod
    def of(cls, head: Head, how: str, signer: str) -> SeenHead:
        return cls(head.number, digest_of(head), head.tip, how, signer)


def digest_of(head: Head) -> str:
    """Return the hash of the signed lines."""
    return hashlib.sha256(head.text.encode("ascii")).hexdigest()


def read_seen_heads(fetched: str) -> dict[str, SeenHead]:
    """Return the remembered heads by the local names of the timelines. Malformed lines are skipped."""
    found: dict[str, SeenHead] = {}
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
            found[name] = SeenHead(int(words[1]), digest, tip, how, signer)
    return found


def commits_signed_by_ssh(fetched: FetchedStore, timeline: str) -> frozenset[str]:
    """Return the commits covered by a verified SSH signature: its tip and all commits before it."""
    seen = read_seen_heads(fetched.path).get(timeline)
    if seen is None or seen.how != BY_SSH:
        return frozenset()
    listed = fetched.git.ask("rev-list", "--first-parent", "--end-of-options", seen.tip)
    return frozenset(listed.out.decode("ascii").split()) if listed.status == 0 else frozenset()


def write_seen_heads(fetched: str, seen: dict[str, SeenHead]) -> None:
    """Write the remembered heads."""
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
