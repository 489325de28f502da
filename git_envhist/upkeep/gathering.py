"""Notes made whole of every version of them that is still there, where one of their objects is lost.

Notes are only ever added to: what was said once stands in every later version, and each is a tree of its own that
shares most with the one before. So nothing hangs on the newest: what one of them has lost another has, and a tree whose
commit is lost is known by the snapshots that it speaks of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import closing

from git_envhist.errors import Damaged, GitFailed, GitKilled
from git_envhist.store.commits import Commit, moment_of
from git_envhist.store.notes import MESSAGE, move_notes
from git_envhist.store.objects import CatFile
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.packs import PackWriter
from git_envhist.store.records import HASH
from git_envhist.store.repository import NOTES, Repository
from git_envhist.store.staging import Staging, open_published
from git_envhist.store.trees import DIRECTORY, TreeEntry, decode_tree

NOBODY = b"git-envhist <> 0 +0000"


def gather(
    repository: Repository,
    timeline: str,
    tip: str | None,
    snapshots: Collection[str],
    commits: dict[str, Commit],
) -> str | None:
    """A new commit of notes with all that any version of a timeline's says; None where none is left.

    `tip`: where its ref stands; `snapshots`: the commits they are about; `commits`: every commit in our packs.
    """
    own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
    with closing(own):
        found = _NotesUnion(repository, own)
        notes = {oid: one for oid, one in commits.items() if one.message == MESSAGE}
        others = _of_others(repository, timeline)
        told = sorted((one for oid, one in notes.items() if oid not in others), key=_moment)
        for commit in told:
            if found.speaks_of(bytes.fromhex(commit.tree), snapshots):
                found.add(bytes.fromhex(commit.tree))
        # The last of all, most likely: their commit is what was lost.
        for tree in _without_commit(repository, own, commits.values()):
            if tree.hex() not in others:
                found.add_lost(tree, snapshots)
        # As git reads it: somebody may have noted something with a git of theirs.
        found.add_by_git(tip)
        return _write(repository, found, told[-1].committer if told else NOBODY)


def _moment(commit: Commit) -> tuple[object, ...]:
    return (moment_of(commit.committer),)


def _of_others(repository: Repository, timeline: str) -> frozenset[str]:
    """The objects of other writers' notes: what they say stays theirs."""
    tips = [tip for ref, tip in repository.list_refs(NOTES).items() if ref != NOTES + timeline]
    words = ("rev-list", "--objects", "--ignore-missing", "--missing=allow-any", *tips)
    told = repository.git.ask(*words).out if tips else b""
    return frozenset(line[: 2 * repository.hash_length].decode("ascii") for line in told.splitlines())


def _without_commit(repository: Repository, own: OwnPacks, commits: Iterable[Commit]) -> list[bytes]:
    """The trees in our packs at which no commit stands that can be read."""
    ids = {oid for pack in own.packs for oid in pack.index.names()}
    asked = b"".join(b"%b\n" % oid.hex().encode("ascii") for oid in ids)
    told = repository.git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked)
    trees = {
        bytes.fromhex(line[5:].decode("ascii")) for line in told.splitlines() if line.startswith(b"tree ")
    }
    return sorted(trees - {bytes.fromhex(commit.tree) for commit in commits})


class _NotesUnion:
    """Lines by snapshot, and attached files by path, of the versions that were added, oldest first."""

    def __init__(self, repository: Repository, own: OwnPacks) -> None:
        self.texts: dict[str, dict[bytes, None]] = {}
        self.files: dict[bytes, bytes] = {}
        self._repository = repository
        self._own = own
        self._seen: set[tuple[bytes, bytes]] = set()
        self._known: dict[bytes, frozenset[bytes]] = {}

    def speaks_of(self, tree: bytes, snapshots: Collection[str]) -> bool:
        """Whether it is a tree of notes, and of these."""
        below = {name: oid for name, mode, oid in self._entries(tree) if mode == DIRECTORY and len(name) == 2}
        words = (one.encode("ascii") for one in snapshots)
        return any(word[:2] in below and word[2:] in self._names(below[word[:2]]) for word in words)

    def _names(self, tree: bytes) -> frozenset[bytes]:
        # Versions share most: each is looked into once.
        if tree not in self._known:
            self._known[tree] = frozenset(name for name, _, _ in self._entries(tree))
        return self._known[tree]

    def add(self, tree: bytes, above: bytes = b"") -> None:
        """Take in what can be read below a tree."""
        for name, mode, oid in self._entries(tree):
            path = above + name
            if (path, oid) not in self._seen:
                self._seen.add((path, oid))
                if mode == DIRECTORY:
                    self.add(oid, path + b"/")
                else:
                    self._add_file(path, oid)

    def add_lost(self, tree: bytes, snapshots: Collection[str]) -> None:
        """Take in what nothing leads to: a whole version, or one of its directories, known by the rest of the ids."""
        if self.speaks_of(tree, snapshots):
            self.add(tree)
        for one in self._begins_with(tree, snapshots):
            self.add(tree, one.encode("ascii") + b"/")

    def _begins_with(self, tree: bytes, snapshots: Collection[str]) -> set[str]:
        names = self._names(tree)
        return {one[:2] for one in snapshots if one[2:].encode("ascii") in names}

    def add_by_git(self, tip: str | None) -> None:
        """Take in what git reads at a commit, wherever it stands."""
        told = self._repository.git.ask("rev-parse", "--verify", "--quiet", f"{tip}^{{tree}}")
        if told.status == 0:
            self.add(bytes.fromhex(told.out.decode("ascii").strip()))

    def _add_file(self, path: bytes, oid: bytes) -> None:
        data = self._read(oid)
        commit = path.replace(b"/", b"").decode("utf-8", "replace")
        if data is not None and HASH.fullmatch(commit):
            self.texts.setdefault(commit, {}).update(
                dict.fromkeys(line + b"\n" for line in data.splitlines())
            )
        elif data is not None:
            self.files[path] = data

    def _entries(self, tree: bytes) -> list[TreeEntry]:
        data = self._read(tree)
        try:
            return decode_tree(data, self._repository.hash_length) if data is not None else []
        except Damaged:
            return []

    def _read(self, oid: bytes) -> bytes | None:
        try:
            return self._own.read(oid)[1]
        except (KeyError, Damaged):
            pass
        # One git for each: it ends at what it cannot read.
        with CatFile(self._repository.git) as reader:
            try:
                answer = reader.read(oid.hex())
            except GitKilled:
                raise
            except (Damaged, GitFailed):
                return None
        return answer.data if answer is not None else None


def _write(repository: Repository, found: _NotesUnion, identity: bytes) -> str | None:
    with (
        CatFile(repository.git) as reader,
        Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging,
        PackWriter(staging.pack_dir, repository.object_format) as writer,
    ):
        made = move_notes(
            reader,
            writer,
            None,
            {},
            more={commit: b"".join(lines) for commit, lines in found.texts.items()},
            files=found.files,
            identity=identity,
            object_format=repository.object_format,
        )
        pack = writer.finish()
        if made is not None:
            staging.journal_commit(made)
            staging.publish([pack] if pack else [])
            staging.settle()
    return made
