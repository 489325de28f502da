"""What is to be said where a restore brought what another working tree had, e.g. the better of two forks."""

from __future__ import annotations

import os

from git_envhist.capturing.capture import Capturing
from git_envhist.capturing.timelines import current_timeline
from git_envhist.forking.origins import place_of
from git_envhist.forking.pointing import brought_by, points_back
from git_envhist.forking.relocation import Moved
from git_envhist.model import Restored

FIRST_PATHS = 3


def names_another_place(source: Capturing, restored: Restored) -> str | None:
    """A word about the paths that came and name the place where they were changed; None where there are none."""
    timeline, own = restored.target.timeline, source.repository.root
    if restored.moment is None or timeline == current_timeline(source.repository, source.settings):
        return None
    root = place_of(source, timeline)
    if root is None or root == own:
        return None
    found = [one.path for one in points_back(brought_by(restored.plan), own, Moved.between([root], own))]
    if not found:
        return None
    first = ", ".join(f"'{os.fsdecode(path)}'" for path in found[:FIRST_PATHS])
    more = f" and {len(found) - FIRST_PATHS:,} more" if len(found) > FIRST_PATHS else ""
    return f"what came with this still names '{root}': {first}{more}"
