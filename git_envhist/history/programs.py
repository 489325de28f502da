"""Which changes are programs that came or went, as one would say of tools (pure).

Those in directories that package managers fill are told as the packages that brought them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from git_envhist.history.classes import PACKAGES, class_of, generated_in
from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind, EnvPath, FactChange

PROBE, LINK = "program", "link"
BINARIES = frozenset((b"bin", b"sbin", b".bin", b"Scripts"))
LIBRARY = re.compile(rb"\.(?:so|dylib|dll|pyd)(?:\.[0-9.]+)?\Z")
"""Names of what is loaded and not run, though its mode often says otherwise."""
EXECUTABLE = 0o111
MOST_ELSEWHERE = 20
"""So many at once outside of these directories are no tools: on some file systems every file may be executed."""


def programs(changes: Iterable[Change]) -> tuple[FactChange, ...]:
    """The executables that only one of two moments has; values are their modes."""
    found = [told for change in changes if (told := _program(change)) is not None]
    usual = [told for told in found if _is_for_programs(told.at)]
    return tuple(usual if len(found) - len(usual) > MOST_ELSEWHERE else found)


def _program(change: Change) -> FactChange | None:
    directory = EnvPath(change.path.rpartition(b"/")[0])
    before, after = _mode(change.before), _mode(change.after)
    if change.kind is ChangeKind.RENAMED or (before is None) == (after is None):
        return None
    if class_of(change.path) == PACKAGES or (LINK in (before, after) and not _is_for_programs(directory)):
        return None
    if not _is_for_programs(directory) and _is_made(change.path):
        return None
    return FactChange(PROBE, change.path.decode("utf-8", "surrogateescape"), before, after, directory)


def _is_made(path: bytes) -> bool:
    """Whether it is a library, or some tool's own: what was built, what stands in a hidden directory."""
    directory = path.rpartition(b"/")[0]
    is_hidden = directory.startswith(b".") or b"/." in directory
    return is_hidden or LIBRARY.search(path) is not None or bool(generated_in(directory)[0])


def _is_for_programs(directory: EnvPath) -> bool:
    return directory.rpartition(b"/")[2] in BINARIES


def _mode(side: ChangeSide | None) -> str | None:
    """The permission bits of something that can be run; a link is told as what it leads to may be."""
    if side is None or not (side.kind is EntryKind.LINK or side.mode & EXECUTABLE):
        return None
    if side.kind not in (EntryKind.FILE, EntryKind.LINK):
        return None
    return LINK if side.kind is EntryKind.LINK else f"{side.mode:04o}"
