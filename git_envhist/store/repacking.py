"""Packs written by git itself: objects of ours copied, and stored as differences of each other where that is smaller.

git is told each object and the path at which it was found, so that versions of one file are held against each other.
It checks what it copies against the checksums of the index it came from, and reads an object elsewhere where one copy
is damaged.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from git_envhist.errors import GitFailed
from git_envhist.store.child import GitStream
from git_envhist.store.durable import sync
from git_envhist.store.git import Git, memory_file
from git_envhist.store.idx import PackIndex
from git_envhist.store.packs import StagedPack
from git_envhist.store.quoting import quote_alternate
from git_envhist.system import DIRECTORY, SYSTEM

DEPTH = 8
"""Differences of differences of… each is read for the one object that is wanted. git's own limit is 50."""
WINDOW = 10
SETTINGS = (
    "pack.packSizeLimit=0",
    "pack.indexVersion=2",
    "pack.writeReverseIndex=false",
    # Of a large environment git would hold much more at a time, and map its packs whole.
    "pack.windowMemory=64m",
    "pack.deltaCacheSize=64m",
    "core.deltaBaseCacheLimit=32m",
    "core.packedGitWindowSize=16m",
    "core.packedGitLimit=128m",
    "pack.compression=6",
    "core.bigFileThreshold=32m",
)
HEADER = 12
AS_IT_IS = ("--window=0",)
ANEW = ("--no-reuse-delta", "--no-reuse-object", f"--window={WINDOW}")
JOINED = (f"--window={WINDOW}",)


def write_pack(
    git: Git,
    objects_dir: str,
    staging: str,
    object_format: str,
    objects: Mapping[bytes, bytes],
    how: tuple[str, ...],
    *,
    threads: int = 1,
) -> list[StagedPack]:
    """Durable packs in a staging that hold these objects (with the path of each); none where there are none."""
    if not objects:
        return []
    asked, words = _asked(objects), _words(how, threads)
    # Beside the staging git would leave what it was writing in the repository, where it is killed.
    directory = os.path.join(staging, "pack")
    with _seen_by_git(staging) as seen:
        places = {
            b"GIT_OBJECT_DIRECTORY": os.fsencode(seen),
            b"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsencode(quote_alternate(objects_dir)),
        }
        bare, where = _without_tree(git)
        told = bare.run(*where, *words, os.path.join(seen, "pack", "pack"), stdin=asked, environment=places)
    packs = [_finish(directory, name, object_format) for name in os.fsdecode(told).split()]
    if sum(pack.objects for pack in packs) != len(objects):
        raise GitFailed(
            "git did not pack what it was told to", hint="nothing was removed; run the command again"
        )
    return packs


@contextmanager
def _seen_by_git(staging: str) -> Iterator[str]:
    """Give a path by which a git finds a staging wherever it is moved to.

    git makes missing directories on the way to a new pack: by its name it would make the staging, and the repository
    around it, again at its old place.
    """
    if not SYSTEM.proc:
        yield staging
        return
    descriptor = os.open(staging, DIRECTORY)
    try:
        os.set_inheritable(descriptor, True)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _without_tree(git: Git) -> tuple[Git, tuple[str, ...]]:
    """Return a git that reads nothing in the working tree, and the words that its command line begins with.

    git asks the attributes of each path that it packs. In the working tree they are the user's, about other files, and
    a pipe with the name `.gitattributes` keeps git waiting for ever.
    """
    bare = Git(git.git_dir, None, alternates=git.alternates, base=git.base)
    return bare, ("--bare", "-C", git.git_dir)


def packed_size(git: Git, objects: Mapping[bytes, bytes], hash_length: int) -> int:
    """How many bytes these objects would take in a pack that a cleaning makes anew; nothing is kept."""
    source = memory_file(_asked(objects))
    bare, where = _without_tree(git)
    child = GitStream(bare, *where, *_words(ANEW, 1), "--stdout", source=source)
    size = 0
    try:
        while chunk := child.read(1 << 20):
            size += len(chunk)
    finally:
        done = child.close()
    if done.status != 0:
        raise GitFailed(
            f"what would be left cannot be told: {done.complaint}",
            hint="'git envlog fsck' says what is damaged",
        )
    return size - HEADER - hash_length


def _asked(objects: Mapping[bytes, bytes]) -> bytes:
    return b"".join(b"%b %b\n" % (oid.hex().encode("ascii"), path) for oid, path in objects.items())


def _words(how: tuple[str, ...], threads: int) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    fixed = ["pack-objects", "-q", "--delta-base-offset", f"--depth={DEPTH}", f"--threads={threads}"]
    return [*settings, *fixed, *how]


def _finish(directory: str, name: str, object_format: str) -> StagedPack:
    """Make a pack of git's one that can be published: durable, and under a name that is never used twice."""
    unique = hashlib.new(object_format, name.encode() + os.urandom(16), usedforsecurity=False).hexdigest()
    base, named = os.path.join(directory, f"pack-{name}"), os.path.join(directory, f"pack-{unique}")
    for suffix in (".pack", ".idx"):
        descriptor = os.open(base + suffix, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(base + suffix, named + suffix)
    index = PackIndex(named + ".idx", 20 if object_format == "sha1" else 32)
    try:
        count = index.count
    finally:
        index.close()
    return StagedPack(
        f"pack-{unique}", named + ".pack", named + ".idx", count, os.stat(named + ".pack").st_size
    )
