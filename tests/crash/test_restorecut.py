"""Power failures at some positions of some restores; `restorecut` tries hundreds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.crash.powercut import NAMESPACE
from tests.support.programs import CHECKOUT


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a recording disk")
def test_restore_survives_a_power_failure() -> None:
    words = [sys.executable, "-m", "tests.crash.restorecut", "--acts", "2", "--cuts", "3", "--seed", "4"]
    clean = {name: value for name, value in os.environ.items() if name != NAMESPACE}
    done = subprocess.run(words, cwd=CHECKOUT, env=clean, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "| 3 |" in done.stdout
