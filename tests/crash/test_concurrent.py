"""No concurrent change during a restore is lost; `concurrent` tests this for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.concurrent import Desk, work_and_restore
from tests.crash.faults import needs_strace
from tests.support.repository import Repo


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2])
def test_concurrent_changes_during_a_restore_are_not_lost(repo: Repo, tmp_path: Path, seed: int) -> None:
    status, wrong = work_and_restore(Desk(repo, tmp_path / "outside"), seed)
    assert wrong == []
    assert status in (0, 3, 5)
    assert (tmp_path / "outside/written").read_bytes().count(b"\n") > 0
