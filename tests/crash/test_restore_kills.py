"""Some faults at some calls of a restore; `restorekills` tries them all."""

from __future__ import annotations

import random

import pytest

from tests.crash.faults import needs_strace
from tests.crash.restorecut import prepare
from tests.crash.restorekills import Row, Walk, one_point
from tests.support.repository import Repo

# Before the journal, when it is written, in the middle of the swaps, when all is done but the record.
REFUSED = (("write", "ENOSPC", 9), ("sync", "EIO", 20), ("rename", "EIO", 12), ("write", "ENOSPC", 30))


@needs_strace
@pytest.mark.full
def test_whatever_a_restore_is_refused_is_told_and_leaves_a_way(repo: Repo) -> None:
    walk, row = Walk(repo, prepare(repo), random.Random(3)), Row("refused")
    for call, error, when in REFUSED:
        one_point(walk, row, "restore", call, f"error={error}", when)
    assert row.wrong == []
    assert row.points >= 3


@needs_strace
@pytest.mark.full
def test_killed_with_all_that_it_started_and_again_while_it_recovers(repo: Repo) -> None:
    walk, wrong = Walk(repo, prepare(repo), random.Random(5)), list[str]()
    for depth in range(3):
        walk.kill_any_time("envrestore", walk.there)
        walk.settle(wrong, depth)
    assert wrong == []
