"""What a fetch has brought, looked at before anybody reads it: nothing that is read whole is larger than any of ours.

Commits, trees and notes are read whole by whoever lists a history, and some bytes of a pack stand for gigabytes of
them. git holds a pack to its checksums and its objects to their form, not to a size; so the sizes of what is new are
asked, which takes no more than their heads. What is too large goes again, with all that came along.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from git_envhist.model.sharing import Remote
from git_envhist.store.bounds import LISTED, find_large
from git_envhist.store.durable import forget
from git_envhist.store.fetched import Fetched
from git_envhist.store.idx import PackIndex
from git_envhist.store.remotefailures import too_much

INDEX = ".idx"
ENDINGS = (INDEX, ".rev", ".promisor", ".pack")
"""In this order a pack goes: git sees it as long as there is an index."""


class Arrivals:
    """The packs that came since this was made; `again`: all there are, for what came before was not looked at."""

    def __init__(self, fetched: Fetched, *, again: bool = False) -> None:
        self._fetched = fetched
        self._known: set[str] = set() if again else self._packs()

    def look(
        self, remote: Remote, notes: Iterable[str] = (), before: Mapping[str, str] | None = None
    ) -> None:
        """`Bomb` where something is too large: then the refs are again as they were `before`, and it is gone."""
        new = self._packs() - self._known
        found = find_large(self._fetched.git, notes, self._sizes(new)) if new else None
        if found is not None:
            if before is not None:
                self._put_back(before)
            for name in new:
                for ending in ENDINGS:
                    forget(name + ending)
            raise too_much(remote, f"holds {found}")
        self._known |= new

    def _packs(self) -> set[str]:
        place = os.path.join(self._fetched.objects_dir, "pack")
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = os.listdir(place)
        return {os.path.join(place, name.removesuffix(INDEX)) for name in names if name.endswith(INDEX)}

    def _sizes(self, packs: Iterable[str]) -> bytes:
        asked = bytearray()
        for pack in packs:
            index = PackIndex(pack + INDEX, self._fetched.hash_length)
            try:
                asked += b"".join(b"%b\n" % name.hex().encode("ascii") for name in index.names())
            finally:
                index.close()
        return self._fetched.git.run("cat-file", "--buffer", LISTED, stdin=bytes(asked))

    def _put_back(self, before: Mapping[str, str]) -> None:
        here = self._fetched.refs("refs/")
        lines = [f"delete {ref}\n" for ref in here if ref not in before]
        lines += [f"update {ref} {oid}\n" for ref, oid in before.items() if here.get(ref) != oid]
        if lines:
            text = "".join(lines).encode("ascii")
            self._fetched.git.run("update-ref", "--no-deref", "--stdin", stdin=text)
