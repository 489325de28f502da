"""Killed at some of its calls: whole before or whole after, nothing left to do by hand. `campaign` does them all."""

from __future__ import annotations

import pytest

from tests.crash.faults import (
    age_locks,
    capture_with_fault,
    capture_with_faulty_git,
    change,
    judge,
    judge_the_next,
    needs_strace,
    prepare,
)
from tests.support.repository import Repo

# One before the packs, some while they are written and published, some around the ref, the last ones after it.
POINTS = {"write": (4, 9, 13), "sync": (4, 8, 11, 13), "rename": (1, 4, 8), "unlink": (1,), "mkdir": (4,)}


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("call", POINTS)
def test_a_killed_capture_leaves_a_whole_history_and_nothing_to_clear_up(repo: Repo, call: str) -> None:
    prepare(repo)
    for when in POINTS[call]:
        before = change(repo, f"{call} {when}")
        done = capture_with_fault(repo, call, "signal=KILL", str(when))
        # Where it is a git of ours that met the kill, the capture may well do without its answer, and say so.
        met = done.status != 0 or b"git ended with status -9" in done.stderr
        assert met, f"there is no {when}th {call} any more: the points are to be chosen anew"
        assert judge(repo, before, done) == [], when
        assert judge_the_next(repo) == [], when


@needs_strace
@pytest.mark.full
def test_a_git_that_is_killed_while_it_moves_the_refs_costs_nothing_but_the_capture(repo: Repo) -> None:
    prepare(repo)
    for when in (1, 2):
        before = change(repo, f"rename {when}")
        done = capture_with_faulty_git(repo, "update-ref", "rename", "signal=KILL", str(when))
        assert judge(repo, before, done) == [], when
        age_locks(repo)
        assert judge_the_next(repo) == [], when
