"""A sample of the faults in merges and reverts; `mergekills` tries all."""

from __future__ import annotations

import random

import pytest

from tests.crash.campaign import KILL
from tests.crash.faults import needs_strace
from tests.crash.merge_world import MERGE, REVERT, make_world
from tests.crash.mergekills import each_change, one_call
from tests.crash.restorekills import Row
from tests.support.repository import Repo


@pytest.mark.full
@pytest.mark.parametrize("verb", [MERGE, REVERT])
def test_merge_of_all_units_survives_a_kill_before_a_change_and_two_in_its_recovery(
    repo: Repo, verb: str
) -> None:
    row = Row(verb)
    each_change(make_world(repo, verb), row, random.Random(4), 70)
    assert row.wrong == []
    assert row.points >= 2


@needs_strace
@pytest.mark.full
def test_merge_with_a_failed_or_last_system_call_ends_at_a_known_state(repo: Repo) -> None:
    world, row, chance = make_world(repo, MERGE), Row(MERGE), random.Random(4)
    for call, fault, when in (("rename", KILL, 9), ("write", "error=ENOSPC", 60)):
        one_call(world, row, chance, call, fault, when)
    assert row.wrong == []
    assert row.points == 2
