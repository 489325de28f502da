"""Ctrl-C under `git envlog` arrives twice, from the terminal and from git, and stops the program once."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, time
signal.signal(signal.{name}, signal.SIG_DFL)
from git_envhist.cli import enable_interrupts
from git_envhist.cli.main import _stop_at_signals
enable_interrupts()
_stop_at_signals()
try:
    os.kill(os.getpid(), signal.{name})
    time.sleep(60)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.{name})
    print("cleared up")
import git_envhist.cli as cli
cli.ECHO_SECONDS = 0.0
try:
    os.kill(os.getpid(), signal.{name})
    time.sleep(60)
except KeyboardInterrupt:
    print("stopped by a second signal")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_repeated_signal_is_ignored_within_a_second(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(name=name)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("cleared up\nstopped by a second signal\n", "")
