"""Which paths a restore may touch, and why it leaves the others alone.

What the snapshot did not capture is not what was absent then: it stays. What is no part of the environment now could
not be saved before it is replaced: it stays as well. Whether a path is left out is asked of the rules of both moments,
which the snapshots tell; what git ignores plays no part.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile
from git_envhist.model import EnvPath, MissingPath, MissingReason
from git_envhist.paths import ROOT_PREFIX, join
from git_envhist.restore.plan import NOT_CHOSEN
from git_envhist.snapshots.layout import MISSING, RULES
from git_envhist.snapshots.names import RESERVED
from git_envhist.snapshots.records import ROOT_MARK, read_missing, read_rules
from git_envhist.worktree.ignore import MAX_PATTERNS, ignore_rules, usable

Ignored = Callable[[bytes, bytes, bool], bool]

NOT_CAPTURED = "the snapshot does not hold it"
LEFT_OUT_THEN = "it was left out of the snapshot"
LEFT_OUT_NOW = "it is no part of the environment now"
MOUNTED = "it is mounted from elsewhere"
HOLDS_MOUNT = "something is mounted in it from elsewhere"
HOLDS_LEFT_OUT = "it holds what is no part of the environment"
NO_ROOT = "its root is not configured here"
CODE = "HEAD tracks it"
IMMUTABLE = "it cannot be changed: it is immutable, or its file system read-only"
MAX_ASKED = 60.0
"""Seconds for the patterns of a snapshot, which may come from elsewhere."""


class CapturedExtent(NamedTuple):
    """What one of two moments did not look at."""

    ignored: Ignored | None
    missing: dict[EnvPath, MissingReason]
    unread: frozenset[EnvPath] = frozenset()
    """Paths of which only extended attributes are missing."""

    @classmethod
    def of(
        cls, ignore: Sequence[str], exclude: Sequence[str], missing: Iterable[MissingPath]
    ) -> CapturedExtent:
        rules = ignore_rules(_usable(ignore), _usable(exclude), seconds=MAX_ASKED)
        by_why = [(item.path, item.why) for item in missing]
        unread = frozenset(path for path, why in by_why if why is MissingReason.ATTRIBUTES)
        return cls(rules, {path: why for path, why in by_why if why is not MissingReason.ATTRIBUTES}, unread)

    def leaves_out(self, path: bytes, *, directory: bool) -> bool:
        """Whether the rules name a path, or a directory that it lies in."""
        if self.ignored is None:
            return False
        root, mark, below = path.partition(ROOT_MARK)
        top, names = (ROOT_PREFIX + root, below.split(b"/")) if mark else (b"", path.split(b"/"))
        here = top
        for depth, name in enumerate(names):
            if name and self.ignored(here, name, directory or depth + 1 < len(names)):
                return True
            here = join(here, name)
        return False

    def lacks(self, path: bytes) -> MissingReason | None:
        """Why a path, or a directory that it lies in, could not be captured; None where it could."""
        if not self.missing:
            return None
        while path:
            if (why := self.missing.get(EnvPath(path))) is not None:
                return why
            path = above(path)
        return self.missing.get(EnvPath(b""))


def _usable(patterns: Sequence[str]) -> tuple[str, ...]:
    if len(patterns) > MAX_PATTERNS:
        # Without some of them, a restore would remove what the snapshot left out.
        raise Damaged(f"a snapshot names {len(patterns):,} patterns of what it left out")
    return usable(patterns)[0]


def extent_of(reader: CatFile, tree: str) -> CapturedExtent:
    """What a snapshot did not look at, as it tells itself."""

    def told(name: bytes) -> bytes:
        found = reader.read(f"{tree}:{(RESERVED + b'/' + name).decode()}")
        return found.data if found is not None else b""

    return CapturedExtent.of(*read_rules(told(RULES)), read_missing(told(MISSING)))


class Scope:
    """What a restore may touch."""

    def __init__(
        self,
        then: CapturedExtent,
        now: CapturedExtent,
        *,
        roots: Mapping[bytes, bytes] = MappingProxyType({}),
        chosen: Collection[bytes] | None = None,
        code: Collection[bytes] = (),
    ) -> None:
        self._then = then
        self._now = now
        self._roots = roots
        self._chosen = None if chosen is None else frozenset(chosen)
        self._above = with_directories(chosen or ())
        self._code = code

    def keep(self, path: EnvPath, directory: bool = False) -> str | None:
        """Why a path must stay as it is; None where it may be touched."""
        # The parent directories of a chosen path are restored; a file of the snapshot at the same path is not.
        is_above = directory and path in self._above
        if self._chosen is not None and path not in self._chosen and not is_above:
            return NOT_CHOSEN
        if path in self._code:
            return CODE
        root, mark, _ = path.partition(ROOT_MARK)
        if mark and root not in self._roots:
            return NO_ROOT
        return self._unseen_then(path, directory) or self._unseen_now(path, directory)

    def keep_standing(self, path: EnvPath, directory: bool = False) -> str | None:
        """The same, and why what stands there cannot be changed."""
        why = self.keep(path, directory)
        if why is None and self._roots:
            root, mark, below = path.partition(ROOT_MARK)
            base = self._roots.get(root if mark else b"")
            if base is not None and _is_immutable(os.path.join(base, below if mark else path)):
                return IMMUTABLE
        return why

    def _unseen_then(self, path: EnvPath, directory: bool) -> str | None:
        why = self._then.lacks(path)
        if why is not None:
            return MOUNTED if why is MissingReason.MOUNT else f"{NOT_CAPTURED} ({why.value})"
        return LEFT_OUT_THEN if self._then.leaves_out(path, directory=directory) else None

    def _unseen_now(self, path: EnvPath, directory: bool) -> str | None:
        if self._now.lacks(path) is MissingReason.MOUNT:
            return MOUNTED
        return LEFT_OUT_NOW if self._now.leaves_out(path, directory=directory) else None


def holding_mounts(missing: Iterable[MissingPath]) -> Callable[[EnvPath], str | None]:
    """Says of a directory that something is mounted in it: no directory goes from under a mount."""
    mounts = [item.path for item in missing if item.why is MissingReason.MOUNT]
    holding = with_directories(mounts).difference(mounts)
    return lambda path: HOLDS_MOUNT if path and path in holding else None


def holding_left_out(
    now: CapturedExtent, roots: Mapping[bytes, bytes], captured: Mapping[EnvPath, Container[bytes]]
) -> Callable[[EnvPath], str | None]:
    """Says of a directory that something stands in it which no capture looks at: it cannot go from under that.

    `captured`: the names in each directory that the moment of what is here holds, and need not be asked about.
    """

    def holds(path: EnvPath) -> str | None:
        root, mark, below = path.partition(ROOT_MARK)
        place = os.path.join(roots[root if mark else b""], below if mark else path)
        others = _names_beside(place, captured.get(path, ()))
        left_out = any(now.leaves_out(join(path, name), directory=directory) for name, directory in others)
        return HOLDS_LEFT_OUT if left_out else None

    return holds


def _names_beside(place: bytes, known: Container[bytes]) -> list[tuple[bytes, bool]]:
    try:
        with os.scandir(place) as found:
            return [
                (item.name, item.is_dir(follow_symlinks=False)) for item in found if item.name not in known
            ]
    except OSError:
        # What cannot be looked into is seen again before it would go.
        return []


def _is_immutable(place: bytes) -> bool:
    """Whether its owner, who may write to it, cannot; asked only of what is ours."""
    try:
        found = os.lstat(place)
    except OSError:
        return False
    ours = found.st_uid == os.geteuid() and found.st_mode & stat.S_IWUSR and not stat.S_ISLNK(found.st_mode)
    return bool(ours) and not os.access(place, os.W_OK, effective_ids=True)


def with_directories(paths: Iterable[bytes]) -> frozenset[bytes]:
    """Paths, and every directory that one of them lies in."""
    found = set(paths)
    for path in tuple(found):
        while path and (path := above(path)) not in found:
            found.add(path)
    return frozenset(found)


def above(path: bytes) -> bytes:
    """The directory that a path lies in: the top of a further root is called `<name>://`, and lies in none."""
    directory, _, name = path.rpartition(b"/")
    if not directory.endswith(b":/"):
        return directory
    return directory + b"/" if name else b""
