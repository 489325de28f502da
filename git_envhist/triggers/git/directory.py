"""Hooks in the directory that git uses: what stands there keeps running, and comes back byte for byte.

A script of the shell gets our lines before all that it does: it keeps its name, its place, its input and its status,
whatever it goes by (husky's scripts go by their own name, pre-commit's are known to it by their content). Anything else
(another language, a program, a link, a script that is switched off) gets the ending `.pre-envhist` and is called by
ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from git_envhist.errors import Refused
from git_envhist.model.causing import FileEdit, FileState, InstalledPart
from git_envhist.triggers.edits import PROGRAM_MODE, look
from git_envhist.triggers.git.events import HOOKS
from git_envhist.triggers.git.shim import (
    KEPT,
    before_another,
    block,
    calls_another,
    is_ours,
    is_shell,
    whole,
    with_block,
    without_block,
)

EXECUTABLE = 0o111
MOVED_AWAY = (".legacy", ".old")
"""What pre-commit and lefthook call the hook that stood in their place; the first still calls it."""


def plan(directory: str, program: str, *, everywhere: bool = False) -> tuple[FileEdit, ...]:
    """Every event's hook calls us first, and then what was there."""
    return tuple(edit for event in HOOKS for edit in _plan(directory, event, program, everywhere))


def plan_away(directory: str) -> tuple[FileEdit, ...]:
    """Nothing of ours is left in the directory, also where another tool has moved it aside."""
    return tuple(edit for event in HOOKS for edit in _plan_away(directory, event))


def parts(directory: str) -> tuple[InstalledPart, ...]:
    """What of ours is there, event by event; nothing where there is none at all."""
    found = [_part(directory, event) for event in HOOKS]
    return tuple(found) if any(part.active or part.remark for part in found) else ()


def _plan(directory: str, event: str, program: str, everywhere: bool) -> Iterator[FileEdit]:
    path = os.path.join(directory, event)
    there = look(path)
    if there is None:
        yield FileEdit(path, None, FileState(whole(event, program, everywhere=everywhere), PROGRAM_MODE))
    elif calls_another(there.data):
        yield FileEdit(
            path, there, FileState(before_another(event, program, everywhere=everywhere), PROGRAM_MODE)
        )
    elif is_ours(there.data) or _takes_lines(there):
        yield FileEdit(
            path,
            there,
            FileState(with_block(there.data, block(event, program, everywhere=everywhere)), there.mode),
        )
    else:
        yield _put_aside(path + KEPT, there)
        yield FileEdit(
            path, there, FileState(before_another(event, program, everywhere=everywhere), PROGRAM_MODE)
        )


def _put_aside(kept: str, there: FileState) -> FileEdit:
    already = look(kept)
    # An installation that was broken off may have come as far as this.
    if already not in (None, there):
        raise Refused(
            f"what stood there at an earlier time is still there: '{kept}'",
            hint="move it away, or 'git envlog uninstall' first; then install again",
        )
    return FileEdit(kept, already, there)


def _takes_lines(there: FileState) -> bool:
    return there.mode is not None and bool(there.mode & EXECUTABLE) and is_shell(there.data)


def _plan_away(directory: str, event: str) -> Iterator[FileEdit]:
    path = os.path.join(directory, event)
    for place in (path, *(path + ending for ending in MOVED_AWAY)):
        there = look(place)
        if there is None or there.mode is None or not is_ours(there.data):
            continue
        kept = look(path + KEPT) if calls_another(there.data) else None
        left = without_block(there.data)
        if kept is not None:
            yield FileEdit(place, there, kept)
            yield FileEdit(path + KEPT, kept, None)
        else:
            yield FileEdit(place, there, FileState(left, there.mode) if left is not None else None)


def _part(directory: str, event: str) -> InstalledPart:
    path = os.path.join(directory, event)
    there = look(path)
    if there is not None and is_ours(there.data):
        switched_off = there.mode is None or not there.mode & EXECUTABLE
        return InstalledPart(event, not switched_off, path, "it is not executable" if switched_off else "")
    for ending in MOVED_AWAY:
        aside = look(path + ending)
        if aside is not None and is_ours(aside.data):
            return _moved(event, path, ending, there)
    return InstalledPart(event, False, path)


def _moved(event: str, path: str, ending: str, there: FileState | None) -> InstalledPart:
    called = there is not None and ending == ".legacy" and b"pre-commit" in there.data
    if called:
        return InstalledPart(event, True, path + ending, "called by pre-commit")
    return InstalledPart(
        event, False, path + ending, "another tool has put its own hook in place of ours: git envlog install"
    )
