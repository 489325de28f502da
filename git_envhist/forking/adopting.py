"""What is to be said where a restore brought what another working tree had, e.g. the better of two forks."""

from __future__ import annotations

import os
from collections.abc import Iterable

from git_envhist.capturing.capture import Capturing
from git_envhist.capturing.timelines import current_timeline
from git_envhist.errors import Refused
from git_envhist.forking.origins import place_of
from git_envhist.forking.pointing import LINK, TEXT, Rewriter, brought_by, points_back, relocate
from git_envhist.forking.relocation import Moved, can_be_spelled
from git_envhist.model import EnvPath, PlanStep, Restored, Snapshot
from git_envhist.restoring.planning import tracked

FIRST_PATHS = 3
NAMING = (LINK, TEXT)


def names_another_place(source: Capturing, restored: Restored) -> str | None:
    """A word about the paths that came and name the place where they were changed; None where there are none."""
    timeline, own = restored.target.timeline, source.repository.root
    if restored.moment is None or timeline == current_timeline(source.repository, source.settings):
        return None
    root = place_of(source, timeline)
    if root is None or root == own:
        return None
    moved = Moved.between([root], own)
    found = [
        one.path
        for one in points_back(brought_by(restored.plan.steps), source.repository, moved)
        if one.what in NAMING
    ]
    if not found:
        return None
    first = ", ".join(f"'{os.fsdecode(path)}'" for path in found[:FIRST_PATHS])
    more = f" and {len(found) - FIRST_PATHS:,} more" if len(found) > FIRST_PATHS else ""
    advice = "" if restored.relocated else "; --relocate rewrites what can be"
    return f"what came with this still names '{root}': {first}{more}{advice}"


def origin_of(source: Capturing, target: Snapshot) -> str:
    """The place that what comes names; empty where it was made here."""
    timeline, own = target.timeline, source.repository.root
    if timeline == current_timeline(source.repository, source.settings):
        return ""
    root = place_of(source, timeline)
    if root is None:
        raise Refused(
            f"where '{timeline}' stood is not known: there is no working tree of it",
            hint="without --relocate all comes as it is",
        )
    if not can_be_spelled(own):
        raise Refused(
            f"scripts cannot name a place like '{own}' everywhere",
            hint="without --relocate all comes as it is",
        )
    return "" if root == own else root


def relocate_here(source: Capturing, origin: str, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
    """Have what some steps brought name this place and no longer that one; what was rewritten."""
    repository = source.repository
    moved = Moved.between([origin], repository.root)
    found = list(points_back(brought_by(steps), repository, moved))
    code = frozenset() if repository.plain or not found else tracked(repository.git)
    return relocate(Rewriter(repository.root, moved, code), found)[0]
