"""A little of everything that `campaign` does at length."""

from __future__ import annotations

import pytest

from tests.alive.campaign import KINDS
from tests.alive.selfchecking import content, is_whole
from tests.support.repository import Repo

SCALE = 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_changing_files_are_captured_whole_or_reported(repo: Repo, kind: str) -> None:
    repo.git("config", "envhist.workers", "2")
    row = KINDS[kind](repo, SCALE)
    assert row.wrong == []
    assert row.judged or row.flagged


def test_mixture_of_two_versions_is_not_a_state() -> None:
    old, new = content("f1", 1, 5000), content("f1", 2, 5000)
    for whole in (old, new, old[:2500], b""):
        assert is_whole("f1", whole)
        assert is_whole("f1.new", whole)
    for torn in (new[:4096] + old[4096:], old[:-1], new + b"x", bytes(5000), old[:2500] + bytes(2500)):
        assert not is_whole("f1", torn)
    assert not is_whole("f2", old)
