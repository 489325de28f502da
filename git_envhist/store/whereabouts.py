"""Which path is damaged: asked once a comparison has failed, since git tells an object's id, which nobody knows."""

from __future__ import annotations

from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.store.git import Git
from git_envhist.store.layout import MANIFEST, RESERVED
from git_envhist.store.manifest import shard_path
from git_envhist.store.objects import CatFile
from git_envhist.store.quoting import show
from git_envhist.store.trees import DIRECTORY, decode_tree

SHARDS = RESERVED + b"/" + MANIFEST + b"/"
HINT = "compare with another snapshot, and ask 'git envlog fsck' about this one"
LENGTHS = (40, 64)
MOST_DIRECTORIES = 500_000
"""Trees that hold each other many times over stand for any number of them."""


def with_damaged_path(git: Git, snapshots: tuple[str, ...], error: EnvhistError) -> EnvhistError:
    """The same failure, with the path that cannot be read, if it is one in these snapshots (commits or trees)."""
    for snapshot in snapshots:
        if len(snapshot) in LENGTHS:
            with CatFile(git) as reader:
                path = _first_unreadable(reader, snapshot)
            if path is not None:
                what = f"what is said of '{show(path) or '.'}' cannot be read: {error.message}"
                return Damaged(what, hint=HINT)
    return error


def _first_unreadable(reader: CatFile, snapshot: str) -> bytes | None:
    later: list[tuple[bytes, str, bool]] = []
    directories: list[bytes] = []
    waiting = [(b"", f"{snapshot}^{{tree}}", True)]
    while (waiting or later) and len(directories) < MOST_DIRECTORIES:
        # What is said of directories comes last: by then it is known which there are.
        path, name, is_tree = (waiting or later).pop()
        try:
            answer = reader.read(name)
            if answer is None:
                raise Damaged("it is missing")
            found = decode_tree(answer.data, len(snapshot) // 2, gitlinks=True) if is_tree else []
        except (Damaged, GitFailed):
            return _meant(path, directories)
        directories += [path] if is_tree else []
        for entry, mode, oid in found:
            below = path + b"/" + entry if path else entry
            is_said = below.startswith(SHARDS)
            if mode == DIRECTORY or is_said:
                (later if is_said else waiting).append((below, oid.hex(), mode == DIRECTORY))
    return None


def _meant(path: bytes, directories: list[bytes]) -> bytes:
    """The directory that a shard speaks of; any other path is itself."""
    if path.startswith(SHARDS):
        names = path.removeprefix(SHARDS)
        for directory in directories:
            if "/".join(shard_path(directory)).encode("ascii") == names:
                return directory
    return path
