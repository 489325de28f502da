"""The paths that a restore may change, and reasons to skip the others.

What the snapshot did not capture was not necessarily absent, so it stays. What is excluded now cannot be saved before
it is replaced, so it stays as well. Exclusion is decided by the rules stored in both snapshots; git's ignore files have
no effect.
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
from git_envhist.restore.plan_steps import SkipReason
from git_envhist.snapshots.layout import MISSING, RULES
from git_envhist.snapshots.list_texts import ROOT_MARK, read_missing, read_rules
from git_envhist.snapshots.stored_names import RESERVED
from git_envhist.worktree.path_patterns import MAX_PATTERNS, ignore_rules, usable

Ignored = Callable[[bytes, bytes, bool], bool]

MAX_SECONDS = 60.0
"""Time limit for matching the patterns of a snapshot, which may be hostile."""


class CapturedExtent(NamedTuple):
    """The exclusion rules and missing paths of a snapshot."""

    ignored: Ignored | None
    missing: dict[EnvPath, MissingReason]
    unread: frozenset[EnvPath] = frozenset()
    """Paths of which only extended attributes are missing."""

    @classmethod
    def of(
        cls, ignore: Sequence[str], exclude: Sequence[str], missing: Iterable[MissingPath]
    ) -> CapturedExtent:
        rules = ignore_rules(_usable(ignore), _usable(exclude), seconds=MAX_SECONDS)
        by_why = [(item.path, item.why) for item in missing]
        unread = frozenset(path for path, reason in by_why if reason is MissingReason.ATTRIBUTES)
        return cls(
            rules, {path: reason for path, reason in by_why if reason is not MissingReason.ATTRIBUTES}, unread
        )

    def excludes(self, path: bytes, *, directory: bool) -> bool:
        """Return whether the rules exclude a path or a directory above it."""
        if self.ignored is None:
            return False
        root, mark, below = path.partition(ROOT_MARK)
        top, names = (ROOT_PREFIX + root, below.split(b"/")) if mark else (b"", path.split(b"/"))
        directory_path = top
        for depth, name in enumerate(names):
            if name and self.ignored(directory_path, name, directory or depth + 1 < len(names)):
                return True
            directory_path = join(directory_path, name)
        return False

    def missing_reason(self, path: bytes) -> MissingReason | None:
        """Return why a path, or a directory above it, could not be captured; None if it was."""
        if not self.missing:
            return None
        while path:
            if (reason := self.missing.get(EnvPath(path))) is not None:
                return reason
            path = directory_of(path)
        return self.missing.get(EnvPath(b""))


def _usable(patterns: Sequence[str]) -> tuple[str, ...]:
    if len(patterns) > MAX_PATTERNS:
        # Without all of them, a restore could remove excluded files.
        raise Damaged(f"a snapshot names {len(patterns):,} patterns of what it left out")
    return usable(patterns)[0]


def extent_of(reader: CatFile, tree: str) -> CapturedExtent:
    """Return the extent that a snapshot records."""

    def stored(name: bytes) -> bytes:
        found = reader.read(f"{tree}:{(RESERVED + b'/' + name).decode()}")
        return found.data if found is not None else b""

    return CapturedExtent.of(*read_rules(stored(RULES)), read_missing(stored(MISSING)))


class Scope:
    """Decides which paths a restore may change."""

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
        """Return why a path must be skipped; None if it may be changed."""
        # The parent directories of a chosen path are restored; a file of the snapshot at the same path is not.
        is_above = directory and path in self._above
        if self._chosen is not None and path not in self._chosen and not is_above:
            return SkipReason.NOT_CHOSEN
        if path in self._code:
            return SkipReason.TRACKED
        root, mark, _ = path.partition(ROOT_MARK)
        if mark and root not in self._roots:
            return SkipReason.NO_ROOT
        return self._not_captured(path, directory) or self._excluded_now(path, directory)

    def keep_existing(self, path: EnvPath, directory: bool = False) -> str | None:
        """Return the same, or that the existing entry is immutable."""
        reason = self.keep(path, directory)
        if reason is None and self._roots:
            root, mark, below = path.partition(ROOT_MARK)
            base = self._roots.get(root if mark else b"")
            if base is not None and _is_immutable(os.path.join(base, below if mark else path)):
                return SkipReason.IMMUTABLE
        return reason

    def _not_captured(self, path: EnvPath, directory: bool) -> str | None:
        reason = self._then.missing_reason(path)
        if reason is not None:
            return (
                SkipReason.MOUNTED
                if reason is MissingReason.MOUNT
                else f"{SkipReason.NOT_CAPTURED} ({reason.value})"
            )
        return SkipReason.LEFT_OUT_THEN if self._then.excludes(path, directory=directory) else None

    def _excluded_now(self, path: EnvPath, directory: bool) -> str | None:
        if self._now.missing_reason(path) is MissingReason.MOUNT:
            return SkipReason.MOUNTED
        return SkipReason.LEFT_OUT_NOW if self._now.excludes(path, directory=directory) else None


def keep_above_mounts(missing: Iterable[MissingPath]) -> Callable[[EnvPath], str | None]:
    """Return a rule that keeps directories above mount points."""
    mounts = [item.path for item in missing if item.why is MissingReason.MOUNT]
    holding = with_directories(mounts).difference(mounts)
    return lambda path: SkipReason.HOLDS_MOUNT if path and path in holding else None


def keep_with_excluded(
    now: CapturedExtent, roots: Mapping[bytes, bytes], captured: Mapping[EnvPath, Container[bytes]]
) -> Callable[[EnvPath], str | None]:
    """Return a rule that keeps directories with excluded entries.

    `captured`: the names in each directory that the safety snapshot has, which need not be checked.
    """

    def keep(path: EnvPath) -> str | None:
        root, mark, below = path.partition(ROOT_MARK)
        place = os.path.join(roots[root if mark else b""], below if mark else path)
        others = _other_names(place, captured.get(path, ()))
        left_out = any(now.excludes(join(path, name), directory=directory) for name, directory in others)
        return SkipReason.HOLDS_LEFT_OUT if left_out else None

    return keep


def _other_names(place: bytes, known: Container[bytes]) -> list[tuple[bytes, bool]]:
    try:
        with os.scandir(place) as found:
            return [
                (item.name, item.is_dir(follow_symlinks=False)) for item in found if item.name not in known
            ]
    except OSError:
        # An unreadable directory is checked again when it is removed.
        return []


def _is_immutable(place: bytes) -> bool:
    """Return whether the owner has write permission on a file of this user, and still cannot write."""
    try:
        found = os.lstat(place)
    except OSError:
        return False
    own_file = (
        found.st_uid == os.geteuid() and found.st_mode & stat.S_IWUSR and not stat.S_ISLNK(found.st_mode)
    )
    return bool(own_file) and not os.access(place, os.W_OK, effective_ids=True)


def with_directories(paths: Iterable[bytes]) -> frozenset[bytes]:
    """Return the paths with all directories above them."""
    found = set(paths)
    for path in tuple(found):
        while path and (path := directory_of(path)) not in found:
            found.add(path)
    return frozenset(found)


def directory_of(path: bytes) -> bytes:
    """Return the directory of a path; the top of an additional root is `<name>://`, and its directory is empty."""
    directory, _, name = path.rpartition(b"/")
    if not directory.endswith(b":/"):
        return directory
    return directory + b"/" if name else b""
