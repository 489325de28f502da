"""Blobs of the repository that are too large to be held: how large they are, and their bytes as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.errors import GitFailed
from git_envhist.store.child import GitStream
from git_envhist.store.git import Git

# git would hold a whole blob in memory, too, unless it takes it for a big one.
STREAMED = ("-c", "core.bigFileThreshold=1m")


def blob_sizes(git: Git, oids: Iterable[str]) -> dict[str, int]:
    """How many bytes each of some blobs has; those that are not there are left out."""
    asked = "".join(f"{oid}\n" for oid in oids).encode("ascii")
    if not asked:
        return {}
    told = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked)
    rows = [line.split(" ") for line in told.decode("ascii", "replace").splitlines()]
    return {oid: int(size) for oid, size in rows if size.isdigit()}


def blob_blocks(git: Git, oid: str) -> Iterator[bytes]:
    """The bytes of a blob, block by block."""
    child = GitStream(git, *STREAMED, "cat-file", "blob", oid)
    try:
        while block := child.read():
            yield block
    except BaseException:
        child.close()
        raise
    done = child.close()
    if done.status != 0:
        raise GitFailed(done.complaint)
