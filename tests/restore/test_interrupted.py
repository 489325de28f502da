"""Signals at any point of a restore are handled as signals, not as other errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import CHECKOUT

DEEP = "a/b/c/d/e/f"
INTERRUPTED = """
import os, signal, sys
from git_envhist.restore.disk_calls import DiskCalls, open_directory
from git_envhist.restore.slots import Slots, slot_directory

signal.signal(signal.SIGALRM, signal.default_int_handler)
base, deep = os.open(sys.argv[1], os.O_RDONLY), os.fsencode(sys.argv[2])
slots = Slots(base, DiskCalls())
for turn in range(600):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.00002 + turn % 50 * 0.000007)
        while True:
            os.close(open_directory(base, deep))
            slots.at(turn % 2 << 9)
    except KeyboardInterrupt:
        pass
    slots.close()
"""
INTERRUPTING = """
import os, signal, time

begun, begin = os.pipe()
me, other = os.getpid(), os.fork()
if other == 0:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.close(begin)
    for turn in range(TURNS):
        if not os.read(begun, 1):
            break
        time.sleep(turn % 20 * STEP)
        os.killpg(0, signal.SIGINT)
    os._exit(0)
"""
"""A process that interrupts another one, once for each byte it receives."""
FORKED = """
from git_envhist.workers import share_out

for turn in range(TURNS):
    try:
        os.write(begin, b".")
        while True:
            share_out(range(4), int, lambda tool, piece: piece, int, how="fork")
    except KeyboardInterrupt:
        pass
    finally:
        if os.getpid() != me:
            print("a worker continued with its parent's code", flush=True)
            os._exit(1)
os.waitpid(other, 0)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no worker left")
"""
HELD_BACK = """
from git_envhist.platform import signals_blocked

for turn in range(TURNS):
    try:
        os.write(begin, b".")
        while True:
            with signals_blocked():
                pass
    except KeyboardInterrupt:
        pass
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), turn
"""


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False, start_new_session=True
    )


def test_signal_while_a_directory_is_opened_is_not_reported_as_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / DEEP).mkdir(parents=True)
    for group in ("0", "1"):
        (tmp_path / "slots" / group).mkdir(parents=True)
    done = run(INTERRUPTED, str(tmp_path), DEEP)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need os.fork")
def test_signal_while_workers_start_ends_all_of_them() -> None:
    done = run("TURNS, STEP = 60, 0.0002\n" + INTERRUPTING + FORKED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no worker left\n", "")


def test_signals_are_handled_again_after_being_blocked() -> None:
    done = run("TURNS, STEP = 1500, 0.000005\n" + INTERRUPTING + HELD_BACK)
    assert (done.returncode, done.stderr) == (0, "")
