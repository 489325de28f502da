"""A reseal killed at any step loses nothing, and the next run completes it (`tests.crash.resealkills`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.faults import needs_strace
from tests.crash.resealkills import killed_at, prepare, read_state
from tests.support.repository import Repo, make_repo

# Before the new key has a name, between the refs of one timeline, between two timelines, and while packs are removed.
POINTS = {"rename": (1, 3, 9, 20), "unlink": (6,), "sync": (12,)}


@needs_strace
@pytest.mark.full
def test_killed_reseal_loses_nothing_and_is_completed_by_the_next(tmp_path: Path) -> None:
    template: Repo = make_repo(tmp_path / "template")
    prepare(template)
    wanted = read_state(template)
    assert sum(wanted.outputs.values()) > 0
    assert wanted.trash
    for kind, points in POINTS.items():
        for when in points:
            done, wrong = killed_at(template, kind, when, wanted)
            assert done.status != 0, f"there is no {kind} {when} any more: choose the points again"
            assert wrong == [], (kind, when)
