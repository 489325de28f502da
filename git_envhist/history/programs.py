"""Which changes are programs that came or went, as one would say of tools (pure).

Those in directories that package managers fill are told as the packages that brought them.
"""

from __future__ import annotations

from collections.abc import Iterable

from git_envhist.history.classes import PACKAGES, class_of
from git_envhist.model import Change, ChangeKind, EntryKind, EnvPath, FactChange, Side

PROBE = "program"
BINARIES = frozenset((b"bin", b"sbin", b".bin", b"Scripts"))
EXECUTABLE = 0o111


def programs(changes: Iterable[Change]) -> tuple[FactChange, ...]:
    """The executables in directories of programs that only one of two moments has; values are their modes."""
    return tuple(found for change in changes if (found := _program(change)) is not None)


def _program(change: Change) -> FactChange | None:
    directory, _, _ = change.path.rpartition(b"/")
    if directory.rpartition(b"/")[2] not in BINARIES or change.kind is ChangeKind.RENAMED:
        return None
    before, after = _mode(change.before), _mode(change.after)
    if (before is None) == (after is None) or class_of(change.path) == PACKAGES:
        return None
    key = change.path.decode("utf-8", "surrogateescape")
    return FactChange(PROBE, key, before, after, EnvPath(directory))


def _mode(side: Side | None) -> str | None:
    """The permission bits of something that can be run; a link is told as what it leads to may be."""
    if side is None or not (side.kind is EntryKind.LINK or side.mode & EXECUTABLE):
        return None
    if side.kind not in (EntryKind.FILE, EntryKind.LINK):
        return None
    return "link" if side.kind is EntryKind.LINK else f"{side.mode:04o}"
