"""`git envlog watch`: one process captures changes once they settle, within a limit of bytes per hour."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from git_envhist.integrations.watch import LIMIT_SECONDS, MAX_UNSETTLED, MIN_APART, MIN_PAUSE, SETTLE, Pace
from tests.support.needs import needs
from tests.support.repository import Repo

WATCH = ("git-envlog", "watch", "--settle", "0.1", "--json")
FEW_WATCHES = ("unshare", "-Ur", "sh", "-c", 'echo 2 > /proc/sys/user/max_inotify_watches && exec "$@"', "sh")


@contextmanager
def watching(repo: Repo, words: Sequence[str] = WATCH) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        words, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def next_paths(child: subprocess.Popen[bytes]) -> list[str]:
    """Return the changed paths of the next snapshot."""
    assert child.stdout is not None
    snapshot = json.loads(child.stdout.readline())["snapshot"]
    assert snapshot["trigger"] == "watch"
    return [one["path"] for one in snapshot["env_changed"]["paths"]]


def test_watch_captures_changes_once_they_settle(repo: Repo) -> None:
    with watching(repo) as child:
        assert "app.py" in next_paths(child)
        (repo.path / "new/deep").mkdir(parents=True)
        repo.write("new/deep/file", b"1")
        seen: list[str] = []
        while "new/deep/file" not in seen:
            seen = next_paths(child)
        # A directory created during the watch is watched, too.
        repo.write("new/deep/other", b"2")
        assert next_paths(child) == ["new/deep/other"]
        second = repo.run("envlog", "watch")
        assert (second.status, second.err.splitlines()[0]) == (
            3,
            "error: another process already watches this environment",
        )
        child.send_signal(signal.SIGTERM)
        assert child.wait() == 143


def test_watch_retries_a_failed_capture_without_new_changes(repo: Repo) -> None:
    with watching(repo) as child:
        assert "app.py" in next_paths(child)
        repo.git("config", "envhist.timeline", "a..b")
        repo.write("late", b"1")
        assert child.stderr is not None
        assert b"warning: capture failed, trying again" in child.stderr.readline()
        repo.git("config", "--unset", "envhist.timeline")
        assert next_paths(child) == ["late"]


@needs("unshare")
def test_watch_polls_without_enough_inotify_watches(repo: Repo) -> None:
    if subprocess.run([*FEW_WATCHES, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot create a namespace with fewer watches")
    for name in "abc":
        (repo.path / name).mkdir()
    with watching(repo, [*FEW_WATCHES, *WATCH]) as child:
        assert "app.py" in next_paths(child)
        repo.write("c/file", b"1")
        assert next_paths(child) == ["c/file"]
        child.kill()
        assert child.stderr is not None
        assert b"warning: the system reports no changes here" in child.stderr.read()


def test_watch_refuses_when_captures_are_disabled(repo: Repo) -> None:
    repo.git("config", "envhist.enabled", "false")
    done = repo.run("envlog", "watch")
    assert (done.status, done.err.splitlines()[0]) == (3, "error: automatic captures are disabled")
    assert repo.run("envlog", "watch", "--settle", "soon").status == 129


def test_capture_is_due_after_quiet_or_a_maximum_time() -> None:
    pace = Pace()
    assert pace.wait(0.0) is None
    for tenth in range(round(MAX_UNSETTLED * 10)):
        pace.changed(tenth / 10)
        assert pace.wait(tenth / 10) == pytest.approx(min(SETTLE, MAX_UNSETTLED - tenth / 10))
    assert pace.wait(MAX_UNSETTLED) == 0.0


def test_captures_are_spaced_by_their_duration() -> None:
    pace = Pace()
    for took in (0.1, 7.0):
        pace.captured(100.0, took, 0)
        assert pace.wait(100.0) is None
        pace.changed(100.0)
        assert pace.wait(100.0) == max(MIN_APART * SETTLE, MIN_PAUSE * took)


def test_captures_are_delayed_at_the_hourly_byte_limit() -> None:
    pace = Pace(max_added=100)
    pace.captured(0.0, 0.0, 60)
    pace.captured(10.0, 0.0, 60)
    pace.changed(20.0)
    assert pace.is_full(20.0)
    assert pace.wait(20.0) == LIMIT_SECONDS - 20.0
    assert not pace.is_full(LIMIT_SECONDS)
    assert pace.wait(LIMIT_SECONDS) == 0.0
