"""Some faults at some system calls of a restore; `restorekills` tries all."""

from __future__ import annotations

import random

import pytest

from tests.crash.faults import needs_strace
from tests.crash.restorecut import prepare
from tests.crash.restorekills import Row, Walk, one_point
from tests.support.repository import Repo

# Before the journal, while it is written, during the swaps, and before the recording.
REFUSED = (("write", "ENOSPC", 9), ("sync", "EIO", 20), ("rename", "EIO", 12), ("write", "ENOSPC", 30))


@needs_strace
@pytest.mark.full
def test_refused_call_is_reported_and_the_restore_can_be_recovered(repo: Repo) -> None:
    walk, row = Walk(repo, prepare(repo), random.Random(3)), Row("refused")
    for call, error, when in REFUSED:
        one_point(walk, row, "restore", call, f"error={error}", when)
    assert row.wrong == []
    assert row.points >= 3


@needs_strace
@pytest.mark.full
def test_restore_survives_kills_of_its_process_group_and_of_the_recovery(repo: Repo) -> None:
    walk, wrong = Walk(repo, prepare(repo), random.Random(5)), list[str]()
    for depth in range(3):
        walk.kill_any_time("envrestore", walk.there)
        walk.settle(wrong, depth)
    assert wrong == []
