"""Ctrl-C under `git envlog` is heard twice, from the terminal and from git: it stops a program once."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, time
signal.signal(signal.{name}, signal.SIG_DFL)
from git_envhist.cli import hear_interrupts
from git_envhist.cli.main import _stop_at_signals
hear_interrupts()
_stop_at_signals()
try:
    os.kill(os.getpid(), signal.{name})
    time.sleep(60)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.{name})
    print("cleared up")
import git_envhist.cli as cli
cli.ONCE = 0.0
try:
    os.kill(os.getpid(), signal.{name})
    time.sleep(60)
except KeyboardInterrupt:
    print("stopped by who asks again")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_echo_of_a_signal_breaks_nothing_off(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(name=name)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("cleared up\nstopped by who asks again\n", "")
