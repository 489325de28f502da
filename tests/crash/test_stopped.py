"""Captures stopped by a user or a shutdown end cleanly at any time, with the right status and no worker left."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from git_envhist.platform import parent_process
from tests.crash.faults import debris
from tests.end_to_end.captures import assert_holds, capture, tip
from tests.hygiene.user_data import belongings
from tests.support.needs import require
from tests.support.oracle import git_fsck
from tests.support.repository import Repo
from tests.support.trees import File, build

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAYS = {"fork": {}, "spawn": {"GIT_ENVHIST_WORKERS": "spawn"}}


def much(repo: Repo) -> None:
    build({b"d%d/f%d" % (n % 50, n): File(os.urandom(3000)) for n in range(2500)}, repo.path)


def start(repo: Repo, way: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["git-envlog", "capture", "-m", "stopped"], cwd=repo.path, env={**repo.env, **WAYS[way]},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def members(session: int) -> list[int]:
    """Return the running processes of a session."""
    require("ps")
    printed = subprocess.run(["ps", "-o", "pid=,stat=", "-s", str(session)], capture_output=True, check=False)
    rows = [line.split() for line in printed.stdout.decode().splitlines()]
    return [int(pid) for pid, state in rows if not state.startswith("Z")]


def children(of: int) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_process(int(name)) == of]


def workers(of: int) -> list[int]:
    """Return the workers of a capture once they run: children other than git."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [pid for pid in children(of) if _runs_python(pid)]
        if len(found) >= 2:
            return found
        time.sleep(0.005)
    pytest.fail("there were no workers")


def _runs_python(pid: int) -> bool:
    try:
        return "python" in os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False


def assert_all_gone(session: int) -> None:
    deadline = time.monotonic() + 60
    while (left := members(session)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def assert_said_what_is_there(repo: Repo, out: bytes) -> None:
    """Check that nothing was printed, or, if the signal came after the line, that the snapshot exists."""
    if out:
        head = out.splitlines()[0].split(b"]")[0].split()[-1].decode()
        assert (tip(repo) or "").startswith(head)


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="workers are found in /proc")


@needs_proc
@pytest.mark.parametrize("number", SIGNALS)
def test_signal_at_any_time_ends_a_capture_with_its_status(repo: Repo, number: signal.Signals) -> None:
    much(repo)
    before = belongings(repo)
    stopped = 0
    for delay in (None, 0, 0.1):
        running = start(repo, "fork")
        # Before its workers start, and while they run; the time of a start depends on the load.
        if delay is None:
            time.sleep(0.08)
        else:
            workers(running.pid)
            time.sleep(delay)
        running.send_signal(number)
        out, err = running.communicate(timeout=30)
        if running.returncode == 0:
            continue
        assert b"Traceback" not in err, err.decode()
        # Before git-envhist's first line runs, the interpreter ends in its usual way.
        assert running.returncode in (128 + number, -number)
        stopped += running.returncode == 128 + number
        assert_said_what_is_there(repo, out)
        assert_all_gone(running.pid)
        assert git_fsck(repo.path) == ""
    assert stopped
    assert belongings(repo) == before
    assert_holds(repo, capture(repo, "afterwards"))
    assert debris(repo) == []


@needs_proc
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_workers_read_leaves_no_worker(repo: Repo, number: signal.Signals, way: str) -> None:
    much(repo)
    running = start(repo, way)
    workers(running.pid)
    os.killpg(running.pid, number)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (128 + number, b""), err.decode()
    assert b"Traceback" not in err
    assert_all_gone(running.pid)
    assert tip(repo) is None
    assert_holds(repo, capture(repo, "afterwards"))
    assert debris(repo) == []


@needs_proc
@pytest.mark.parametrize("way", WAYS)
def test_killed_worker_is_reported_and_no_snapshot_is_published(repo: Repo, way: str) -> None:
    much(repo)
    running = start(repo, way)
    # Kill the first child: a later one may read facts, which are optional.
    os.kill(min(workers(running.pid)), signal.SIGKILL)
    out, err = running.communicate(timeout=30)
    printed = err.decode().splitlines()
    assert (running.returncode, out) == (128, b""), printed
    assert printed[0] == "error: a worker process ended unexpectedly"
    assert printed[1].startswith("hint: ")
    assert len(printed) == 2
    assert_all_gone(running.pid)
    assert tip(repo) is None
    assert_holds(repo, capture(repo, "afterwards"))
    assert debris(repo) == []


@needs_proc
@pytest.mark.parametrize("way", WAYS)
def test_workers_of_a_killed_capture_end(repo: Repo, way: str) -> None:
    much(repo)
    running = start(repo, way)
    workers(running.pid)
    running.kill()
    running.communicate(timeout=30)
    assert_all_gone(running.pid)
    assert tip(repo) is None
    assert_holds(repo, capture(repo, "afterwards"))
    assert debris(repo) == []
