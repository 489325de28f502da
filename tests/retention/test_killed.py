"""A rewrite killed at any step loses nothing, and the same command completes it. See `crash.retention_kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.faults import needs_strace
from tests.crash.retention_kills import killed_at, prepare, without_a_kill
from tests.support.repository import Repo, make_repo

# Between the refs, each of which is renamed as a file, and during the removal of old packs.
POINTS = {"drop": (5,), "purge": (7, 25)}


@needs_strace
@pytest.mark.full
def test_killed_rewrite_loses_nothing_and_is_completed_by_the_same_command(tmp_path: Path) -> None:
    template: Repo = make_repo(tmp_path / "template")
    prepare(template)
    for verb, points in POINTS.items():
        wanted = without_a_kill(template, verb)
        for when in points:
            done, wrong = killed_at(template, verb, "rename", when, wanted)
            assert done.status != 0, f"{verb}: there is no {when}th rename any more: choose other points"
            assert wrong == [], (verb, when)
