"""Which paths of which snapshots a damaged store touches.

Trees that snapshots share are looked into once. What is said of a directory in the manifest, and the pieces of a big
file, are told by the directory and the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from git_envhist.errors import Damaged, EnvhistError, GitFailed, GitKilled
from git_envhist.store.commits import parse_commit
from git_envhist.store.git import Git
from git_envhist.store.layout import MANIFEST, PIECES, RESERVED, split_realm
from git_envhist.store.manifest import shard_path
from git_envhist.store.names import true_name
from git_envhist.store.objects import CatFile
from git_envhist.store.pointers import read_pointer
from git_envhist.store.trees import DIRECTORY, decode_tree
from git_envhist.values import dataclass

SHARDS = RESERVED + b"/" + MANIFEST + b"/"
PIECES_BELOW = RESERVED + b"/" + PIECES + b"/"
LARGEST_POINTER = 200

Lost = tuple[tuple[bytes, bytes], ...]
"""(stored path, object) of what cannot be read."""


@dataclass(frozen=True, slots=True)
class DamagedSnapshot:
    """A snapshot that is not whole."""

    commit: str
    lost: Lost
    """Empty where the commit itself, or its tree, cannot be read."""


class DamageFinder:
    """Looks snapshots through; `is_there` tells whether an object can be had whole."""

    def __init__(self, git: Git, hash_length: int, is_there: Callable[[bytes], bool]) -> None:
        self._git = git
        self._length = hash_length
        self._is_there = is_there
        self._reader = CatFile(git)
        self._known: dict[bytes, Lost] = {}
        self._sound: dict[bytes, bool] = {}

    def close(self) -> None:
        self._reader.close()

    def look(self, commit: str) -> DamagedSnapshot | None:
        """What a snapshot has lost; None where nothing is."""
        try:
            answer = self._reader.read(commit) if self._is_there(bytes.fromhex(commit)) else None
            if answer is None:
                return DamagedSnapshot(commit, ())
            root = bytes.fromhex(parse_commit(answer.data).tree)
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return DamagedSnapshot(commit, ())
        lost = self._below(root)
        return DamagedSnapshot(commit, lost) if lost else None

    def _below(self, tree: bytes) -> Lost:
        found = self._known.get(tree)
        if found is None:
            found = self._known[tree] = tuple(self._look_into(tree))
        return found

    def _look_into(self, tree: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries = self._entries(tree)
        if entries is None:
            yield b"", tree
            return
        for name, mode, oid in entries:
            if mode == DIRECTORY:
                for path, lost in self._below(oid):
                    yield name + b"/" + path if path else name, lost
            elif not self._has(oid):
                yield name, oid

    def _entries(self, tree: bytes) -> list[tuple[bytes, int, bytes]] | None:
        try:
            answer = self._reader.read(tree.hex()) if self._is_there(tree) else None
            return None if answer is None else decode_tree(answer.data, self._length)
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return None

    def _has(self, oid: bytes) -> bool:
        found = self._sound.get(oid)
        if found is None:
            found = self._sound[oid] = self._is_there(oid)
        return found

    def shown(self, hurt: DamagedSnapshot) -> list[str]:
        """The paths that a snapshot has lost, as people know them."""
        found = dict.fromkeys(self._shown(hurt.commit, path) for path, _ in hurt.lost)
        return list(found)

    def _shown(self, commit: str, stored: bytes) -> str:
        if stored.startswith(SHARDS):
            directory = self._directory_of(commit, stored.removeprefix(SHARDS))
            return (
                "what is said of " + (os.fsdecode(directory) or "the top")
                if directory is not None
                else "a shard"
            )
        if stored.startswith(PIECES_BELOW):
            file = self._file_of(commit, stored.removeprefix(PIECES_BELOW))
            stored = file if file is not None else stored
        return os.fsdecode(_true(stored)) or "the top"

    def _directory_of(self, commit: str, names: bytes) -> bytes | None:
        """Of which directory a shard speaks."""
        for path, mode, _ in self._listed(commit, "-d"):
            if mode == b"040000" and "/".join(shard_path(path)).encode("ascii") == names:
                return _true(path)
        return b"" if "/".join(shard_path(b"")).encode("ascii") == names else None

    def _file_of(self, commit: str, names: bytes) -> bytes | None:
        """Which file points to some pieces."""
        wanted = b"".join(names.split(b"/")[:2])
        for path, _, oid in self._listed(commit, "-l"):
            try:
                answer = self._reader.read(oid.decode("ascii"))
                if answer is not None and read_pointer(answer.data).tree.hex().encode("ascii") == wanted:
                    return path
            except EnvhistError:
                continue
        return None

    def _listed(self, commit: str, option: str) -> Iterator[tuple[bytes, bytes, bytes]]:
        """(path, mode, id); with `-l` of files as small as a pointer is."""
        done = self._git.ask("ls-tree", "-r", "-z", "--full-tree", option, commit)
        for line in done.out.split(b"\0"):
            words, _, path = line.partition(b"\t")
            parts = words.split()
            if len(parts) < 3 or (
                option == "-l" and (not parts[3].isdigit() or int(parts[3]) > LARGEST_POINTER)
            ):
                continue
            yield path, parts[0], parts[2]


def _true(stored: bytes) -> bytes:
    """A path as people spell it; one of ours as it is."""
    directory, _, name = stored.rpartition(b"/")
    try:
        _, path = split_realm(directory)
        return path + b"/" + true_name(name) if path else true_name(name)
    except (Damaged, ValueError):
        return stored
