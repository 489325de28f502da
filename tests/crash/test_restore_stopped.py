"""A restore stopped by a signal ends between two steps, with the status of the signal, and prints how to continue."""

from __future__ import annotations

import os
import pty
import random
import select
import signal
import time

import pytest

from tests.crash.faults import needs_strace, traced
from tests.crash.restorecut import prepare
from tests.crash.restorekills import SLOW, Walk
from tests.support.repository import Repo

HALF_WAY = "9"
"""The rename with flags at which the signal arrives: the journal exists, and not everything is swapped."""


@pytest.fixture
def walk(repo: Repo) -> Walk:
    return Walk(repo, prepare(repo), random.Random(1))


@needs_strace
@pytest.mark.full
def test_signal_stops_a_restore_and_its_recovery(walk: Walk) -> None:
    stops = {
        (walk.there,): ("TERM", 143, HALF_WAY),
        ("--continue",): ("INT", 130, "1"),
        ("--abort",): ("HUP", 129, "1"),
    }
    for words, (name, status, when) in stops.items():
        stopped = walk.repo.run("envrestore", *words, prefix=traced("renameat2", f"signal={name}", when))
        assert stopped.status == status, stopped.err
        assert walk.list_files() not in walk.moments.values()
        assert stopped.err.splitlines() == [
            "error: restore stopped by a signal",
            "hint: 'git envrestore --continue' finishes it, 'git envrestore --abort' undoes it",
        ]
    wrong: list[str] = []
    assert walk.settle(wrong) in ("--continue", "--abort")
    assert wrong == []


@needs_strace
@pytest.mark.full
def test_closed_terminal_stops_a_restore(walk: Walk) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(walk.repo.path)
        os.execvpe("strace", [*SLOW, "git-envrestore", walk.there], walk.repo.env)
    deadline = time.monotonic() + 60
    while not walk.is_left() and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.01)[0]:
            os.read(terminal, 1 << 16)
    os.close(terminal)
    # Like the shell, which gets SIGHUP when its terminal is closed.
    os.killpg(pid, signal.SIGHUP)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    assert walk.is_left()
    wrong: list[str] = []
    assert walk.settle(wrong) in ("--continue", "--abort")
    assert wrong == []
