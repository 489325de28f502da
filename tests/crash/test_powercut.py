"""Power failures at some positions of some captures; `powercut` tries hundreds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.powercut import NAMESPACE
from tests.support.programs import CHECKOUT
from tests.support.repository import Repo


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a recording disk")
def test_reported_capture_survives_a_power_failure() -> None:
    words = [sys.executable, "-m", "tests.crash.powercut", "--captures", "2", "--cuts", "4", "--seed", "5"]
    clean = {name: value for name, value in os.environ.items() if name != NAMESPACE}
    done = subprocess.run(words, cwd=CHECKOUT, env=clean, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "| 4 |" in done.stdout


def test_name_that_was_being_written_is_written_again_after_a_power_failure(repo: Repo) -> None:
    state = Path(repo.path / ".git/envhist")
    state.mkdir()
    (state / "timeline.new").write_bytes(b"half a na")
    repo.run("envlog", "capture", check=True)
    assert sorted(path.name for path in state.glob("timeline*")) == ["timeline"]
