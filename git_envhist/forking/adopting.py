"""What is to be said where a restore brought what another working tree had, e.g. the better of two forks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.capturing.timelines import current_timeline
from git_envhist.errors import Refused
from git_envhist.forking.origins import place_of
from git_envhist.forking.pointing import LINK, TEXT, Rewriter, paths_naming, read_file, relocate, written_by
from git_envhist.forking.relocation import Relocation, is_shell_safe
from git_envhist.model import EnvPath, PlanStep, RestoreResult, Snapshot
from git_envhist.restoring.planning import tracked

AS_TOLD = "?"
ACTIVATE = b"/bin/activate"
NAMED = re.compile(rb"^\s*VIRTUAL_ENV=(/[^\n]+|'/[^'\n]+'|\"/[^\"\n]+\")\s*$", re.MULTILINE)
FIRST_PATHS = 3
AGAIN = "git envrestore --undo, and again with --relocate"
NOTHING_CAME = f"nothing came, so nothing was rewritten; where what came before names another place: {AGAIN}"
NAMING = (LINK, TEXT)


def warn_of_foreign_paths(source: CapturePipeline, restored: RestoreResult, *, asked: bool) -> str | None:
    """A word about the paths that came and name the place where they were changed; None where there are none.

    `asked`: they were to be rewritten, which they are as they come."""
    timeline, own = restored.target.timeline, source.repository.root
    if timeline == current_timeline(source.repository, source.settings):
        return None
    if restored.moment is None:
        return NOTHING_CAME if asked and not restored.plan.steps else None
    root = place_of(source, timeline) or original_path(own, restored.plan.steps)
    if root is None or root == own:
        return None
    moved = Relocation.between([root], own)
    found = [
        one.path
        for one in paths_naming(written_by(restored.plan.steps), source.repository, moved)
        if one.what in NAMING
    ]
    if not found:
        return None
    first = ", ".join(f"'{os.fsdecode(path)}'" for path in found[:FIRST_PATHS])
    more = f" and {len(found) - FIRST_PATHS:,} more" if len(found) > FIRST_PATHS else ""
    advice = "" if restored.relocated else f"; to have it rewritten: {AGAIN}"
    return f"what came with this still names '{root}': {first}{more}{advice}"


def original_path(root: str, steps: Iterable[PlanStep]) -> str | None:
    """Where what came stood, as its virtual environments say; None where none does, or where they disagree."""
    told = {_stood_at(root, path) for path, _ in written_by(steps) if path.endswith(ACTIVATE)} - {None}
    return told.pop() if len(told) == 1 else None


def _stood_at(root: str, activate: EnvPath) -> str | None:
    """From the script that makes an environment the current one: the place it names, less the way to it from there."""
    found = NAMED.search(read_file(root, activate))
    place = found[1].strip(b"'\"") if found is not None else b""
    below = b"/" + activate.removesuffix(ACTIVATE)
    return (
        os.fsdecode(place.removesuffix(below)) if place.endswith(below) and len(place) > len(below) else None
    )


def _may_tell(source: CapturePipeline, target: Snapshot) -> bool:
    listed = source.repository.git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", target.tree)
    return ACTIVATE + b"\0" in listed


def original_root(source: CapturePipeline, target: Snapshot) -> str:
    """The place that what comes names; empty where it was made here, `AS_TOLD` where only what comes knows it."""
    timeline, own = target.timeline, source.repository.root
    if timeline == current_timeline(source.repository, source.settings):
        return ""
    root = place_of(source, timeline) or (AS_TOLD if _may_tell(source, target) else None)
    if root is None:
        raise Refused(
            f"where '{timeline}' stood is not known: there is no working tree of it, and no virtual environment tells",
            hint="without --relocate all comes as it is",
        )
    if not is_shell_safe(own):
        raise Refused(
            f"scripts cannot name a place like '{own}' everywhere",
            hint="without --relocate all comes as it is",
        )
    return "" if root == own else root


def relocate_here(source: CapturePipeline, origin: str, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
    """Have what some steps brought name this place and no longer that one; what was rewritten."""
    repository = source.repository
    if origin == AS_TOLD:
        steps = tuple(steps)
        origin = original_path(repository.root, steps) or repository.root
    moved = Relocation.between([origin], repository.root)
    found = list(paths_naming(written_by(steps), repository, moved))
    code = frozenset() if repository.plain or not found else tracked(repository.git)
    return relocate(Rewriter(repository.root, moved, code), found)[0]
