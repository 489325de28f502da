"""The `.git` files of submodules that a restore leaves alone.

Each working tree of a repository has git directories of its own for its submodules. What another one's moment says of
them would make git work over there, and what leads nowhere makes it fail in the whole working tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from git_envhist.model import DirectoryPair, Entry, EntryKind, EnvPath, StoredAs, shown_path
from git_envhist.restore.plan import PlanRules
from git_envhist.store.contents import ObjectReader
from git_envhist.store.modules import LONGEST, common_dir_of, git_directory_of, is_own, module_of
from git_envhist.values import replace

NAME = b".git"
OF_ANOTHER = "it leads to the git directory that this submodule has in another working tree"
LEADS_ASTRAY = "the git directory of this submodule is here, and it would not lead there"


class SkippedSubmodule(NamedTuple):
    """One that is not to come."""

    why: str
    directory: bytes
    """Where it would stand."""
    place: bytes
    """The git directory that it names."""


class SubmodulePointers(NamedTuple):
    """Judges what a moment brings against where the git directories of this working tree are."""

    git_dir: str
    bases: Mapping[bytes, bytes]
    contents: ObjectReader

    def left_alone(self, pairs: Iterable[DirectoryPair]) -> dict[EnvPath, SkippedSubmodule]:
        """Each one that is not to come; the paths as people see them."""
        found = {}
        for pair in pairs:
            entry = pair.after.entries.get(NAME) if pair.after is not None and pair.path else None
            spared = None if entry is None else self._judge(pair, entry)
            if entry is not None and spared is not None:
                found[shown_path(pair.realm, entry.path)] = spared
        return found

    def _judge(self, pair: DirectoryPair, entry: Entry) -> SkippedSubmodule | None:
        base = self.bases.get(pair.realm)
        if base is None or entry.kind is not EntryKind.FILE or entry.stored is not StoredAs.PLAIN:
            return None
        directory = os.path.join(os.path.realpath(base), pair.path)
        then = git_directory_of(directory, self.contents.plain(entry))
        if then is None or is_own(then, self.git_dir):
            return None
        if module_of(then, common_dir_of(self.git_dir)) is not None:
            return SkippedSubmodule(OF_ANOTHER, directory, then)
        leads = own_place(directory, self.git_dir) is not None
        return SkippedSubmodule(LEADS_ASTRAY, directory, then) if leads and not os.path.exists(then) else None


def own_place(directory: bytes, git_dir: str) -> bytes | None:
    """The git directory of a submodule of this working tree, where its `.git` file leads to one now."""
    now = git_directory_of(directory, _read(os.path.join(directory, NAME)))
    return now if now is not None and is_own(now, git_dir) and os.path.exists(now) else None


def skip_submodules(rules: PlanRules, spared: Mapping[EnvPath, SkippedSubmodule]) -> PlanRules:
    """Rules, and what else stays as it is."""
    if not spared:
        return rules

    def keep(path: EnvPath, directory: bool) -> str | None:
        why = rules.keep(path, directory)
        if why is None and (one := spared.get(path)) is not None:
            return one.why
        return why

    return replace(rules, keep=keep)


def _read(place: bytes) -> bytes:
    try:
        # A pipe that bears the name must not hold us up.
        with open(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(LONGEST)
    except OSError:
        return b""
