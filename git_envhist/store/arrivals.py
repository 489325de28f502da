"""What a fetch has brought, looked at before anybody reads it: nothing that is read whole is larger than any of ours.

Commits, trees and notes are read whole by whoever lists a history, and some bytes of a pack stand for gigabytes of
them. git holds a pack to its checksums and its objects to their form, not to a size; so the sizes of what is new are
asked, which takes no more than their heads. Trees that hold each other over and over are the same thing told in another
way: those that moments and notes lead to are weighed. What is too much goes again, with all that came along.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from git_envhist.errors import Damaged
from git_envhist.model.sharing import Remote
from git_envhist.store.bounds import LISTED, DecompressionBomb, find_large
from git_envhist.store.durable import remove_if_present
from git_envhist.store.fetched import INDEX, FetchedStore
from git_envhist.store.idx import PackIndex
from git_envhist.store.objects import CatFile
from git_envhist.store.remotefailures import too_much
from git_envhist.store.unfolding import TreeSizer

ENDINGS = (INDEX, ".rev", ".promisor", ".pack")
"""In this order a pack goes: git sees it as long as there is an index."""


class ArrivedPacks:
    """The packs that came since this was made, and those that a fetch left which was broken off before it looked."""

    def __init__(self, fetched: FetchedStore, known: Iterable[str] | None = None) -> None:
        """`known`: the packs that were looked at; all that are there, where nothing is said."""
        self._fetched = fetched
        self._known = fetched.packs() if known is None else frozenset(known)
        self._sized = self._known

    def look(self, remote: Remote, notes: Iterable[str] = ()) -> None:
        """`DecompressionBomb` where something is too large: then it is gone, with all that came."""
        new = self._fetched.packs() - self._sized
        found = find_large(self._fetched.git, notes, self._sizes(new)) if new else None
        if found is not None:
            raise self._refused(remote, found)
        self._sized |= new

    def weigh(self, remote: Remote, trees: Iterable[str]) -> None:
        """`DecompressionBomb` where one of some trees stands for any number of paths: likewise."""
        try:
            with CatFile(self._fetched.git) as reader:
                endless = TreeSizer(reader, self._fetched.hash_length).find_endless(trees)
        except Damaged as damaged:
            raise self._refused(remote, f"what is not whole: {damaged.message}") from damaged
        if endless is not None:
            raise self._refused(remote, "trees that stand for more paths than an environment has")

    def vouch(self) -> None:
        """Say that all was looked at: what a fetch left that was broken off is known from it."""
        self._fetched.vouch(self._sized - self._known)

    def forget(self) -> None:
        """Remove all that came and was not taken."""
        self._fetched.forget_arriving()
        place = self._fetched.pack_dir
        for name in self._fetched.packs() - self._known:
            for ending in ENDINGS:
                remove_if_present(os.path.join(place, name + ending))

    def _refused(self, remote: Remote, what: str) -> DecompressionBomb:
        self.forget()
        return too_much(remote, f"holds {what}")

    def _sizes(self, packs: Iterable[str]) -> bytes:
        asked = bytearray()
        for pack in packs:
            index = PackIndex(os.path.join(self._fetched.pack_dir, pack + INDEX), self._fetched.hash_length)
            try:
                asked += b"".join(b"%b\n" % name.hex().encode("ascii") for name in index.names())
            finally:
                index.close()
        return self._fetched.git.run("cat-file", "--buffer", LISTED, stdin=bytes(asked))
