"""The `.git` files of submodules that a restore leaves alone.

Each working tree of a repository has git directories of its own for its submodules. What another one's moment says of
them would make git work over there, and what leads nowhere makes it fail in the whole working tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from git_envhist.model import Entry, EntryKind, EnvPath, Pair, StoredAs, shown_path
from git_envhist.restore.plan import Rules
from git_envhist.store.contents import Contents
from git_envhist.store.modules import LONGEST, common_dir_of, is_own, module_of, place_named

NAME = b".git"
OF_ANOTHER = "it leads to the git directory that this submodule has in another working tree"
LEADS_ASTRAY = "the git directory of this submodule is here, and it would not lead there"


class Pointers(NamedTuple):
    """Judges what a moment brings against where the git directories of this working tree are."""

    git_dir: str
    bases: Mapping[bytes, bytes]
    contents: Contents

    def left_alone(self, pairs: Iterable[Pair]) -> dict[EnvPath, str]:
        """Each one that is not to come, and why; the paths as people see them."""
        found = {}
        for pair in pairs:
            entry = pair.after.entries.get(NAME) if pair.after is not None and pair.path else None
            why = None if entry is None else self._why(pair, entry)
            if entry is not None and why is not None:
                found[shown_path(pair.realm, entry.path)] = why
        return found

    def _why(self, pair: Pair, entry: Entry) -> str | None:
        base = self.bases.get(pair.realm)
        if base is None or entry.kind is not EntryKind.FILE or entry.stored is not StoredAs.PLAIN:
            return None
        directory = os.path.join(os.path.realpath(base), pair.path)
        then = place_named(directory, self.contents.plain(entry))
        if then is None or is_own(then, self.git_dir):
            return None
        if module_of(then, common_dir_of(self.git_dir)) is not None:
            return OF_ANOTHER
        now = place_named(directory, _read(os.path.join(directory, NAME)))
        leads = now is not None and is_own(now, self.git_dir) and os.path.exists(now)
        return LEADS_ASTRAY if leads and not os.path.exists(then) else None


def sparing(rules: Rules, spared: Mapping[EnvPath, str]) -> Rules:
    """Rules, and what else stays as it is."""
    if not spared:
        return rules

    def keep(path: EnvPath, directory: bool) -> str | None:
        why = rules.keep(path, directory)
        return why if why is not None else spared.get(path)

    return Rules(keep, rules.keep_new)


def _read(place: bytes) -> bytes:
    try:
        # A pipe that bears the name must not hold us up.
        with open(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(LONGEST)
    except OSError:
        return b""
