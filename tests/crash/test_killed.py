"""Captures killed at some system calls: complete before or after, no manual repair. `campaign` tries all."""

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

# Points before the packs, while they are written and published, around the ref, and after it.
POINTS = {"write": (4, 9, 13), "sync": (4, 8, 11, 13), "rename": (1, 4, 8), "unlink": (1,), "mkdir": (4,)}


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("call", POINTS)
def test_killed_capture_leaves_a_complete_history_and_no_leftovers(repo: Repo, call: str) -> None:
    prepare(repo)
    for when in POINTS[call]:
        before = change(repo, f"{call} {when}")
        done = capture_with_fault(repo, call, "signal=KILL", str(when))
        # If a git child was killed, the capture may continue without its answer, and report this.
        met = done.status != 0 or b"git ended with status -9" in done.stderr
        assert met, f"there is no {when}th {call} any more: choose other points"
        assert judge(repo, before, done) == [], when
        assert judge_the_next(repo) == [], when


@needs_strace
@pytest.mark.full
def test_git_killed_while_moving_refs_loses_only_that_capture(repo: Repo) -> None:
    prepare(repo)
    for when in (1, 2):
        before = change(repo, f"rename {when}")
        done = capture_with_faulty_git(repo, "update-ref", "rename", "signal=KILL", str(when))
        assert judge(repo, before, done) == [], when
        age_locks(repo)
        assert judge_the_next(repo) == [], when
