"""`git envlog install --watcher` starts the watcher, captures start it again, and the status describes it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from git_envhist.watcher.client import exchange
from git_envhist.watcher.start import is_locked, note_failure, stop, wait_until_running
from tests.support.repository import Repo
from tests.watcher.helpers import open_history


@pytest.fixture
def installed(repo: Repo) -> Iterator[Repo]:
    repo.write("file", "x")
    repo.run("envlog", "install", "--watcher")
    yield repo
    stop(state_of(repo))


def state_of(repo: Repo) -> str:
    return open_history(str(repo.path)).repository.state


def ends(repo: Repo) -> bool:
    until = time.monotonic() + 30
    while (repo.path / ".git/envhist/watcher").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return exchange(state_of(repo), {"op": "status"}) is None


def status(repo: Repo) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(repo.run("envlog", "status", "--json").out)["watcher"]
    return found


def test_installed_watcher_runs_and_is_in_the_status(installed: Repo) -> None:
    found = status(installed)
    assert found is not None
    assert found["directories"] == 1
    assert installed.git("config", "envhist.watcher") == "true"
    assert "the watcher follows 1 directory: " in installed.run("envlog", "status").out


def test_capture_starts_the_watcher_again(installed: Repo) -> None:
    stop(state_of(installed))
    assert ends(installed)
    assert "the watcher is not running" in installed.run("envlog", "status").out
    installed.run("envlog", "capture", "-m", "x")
    assert wait_until_running(state_of(installed))


def test_capture_starts_the_watcher_again_after_it_was_killed(installed: Repo) -> None:
    found = status(installed)
    assert found is not None
    os.kill(found["process"], signal.SIGKILL)
    with suppress(ProcessLookupError):
        while True:
            os.kill(found["process"], 0)
            time.sleep(0.01)
    installed.run("envlog", "capture", "-m", "x")
    assert wait_until_running(state_of(installed))


def test_capture_does_not_try_at_once_to_start_a_watcher_that_failed(installed: Repo) -> None:
    stop(state_of(installed))
    assert ends(installed)
    note_failure(state_of(installed), "no watches are left")
    installed.run("envlog", "capture", "-m", "x")
    assert not wait_until_running(state_of(installed), 0.3)


def test_status_names_the_command_that_stops_the_watcher(installed: Repo) -> None:
    assert "to stop it: git envlog uninstall --watcher" in installed.run("envlog", "status").out


def test_watcher_that_does_not_answer_is_busy_and_can_be_stopped(installed: Repo) -> None:
    found = status(installed)
    assert found is not None
    os.kill(found["process"], signal.SIGSTOP)
    while (status(installed) or {}).get("directories"):
        time.sleep(0.01)
    assert "the watcher does not answer now" in installed.run("envlog", "status").out
    assert installed.run("envlog", "uninstall", "--watcher").out == "the watcher is stopped\n"
    os.kill(found["process"], signal.SIGCONT)
    while is_locked(state_of(installed)):
        time.sleep(0.01)


def test_uninstalled_watcher_stays_off_although_the_user_configured_it(repo: Repo) -> None:
    repo.write("file", "x")
    repo.git("config", "--global", "envhist.watcher", "true")
    assert repo.run("envlog", "uninstall", "--watcher").out == "no watcher was running here\n"
    repo.run("envlog", "capture", "-m", "x")
    assert not is_locked(state_of(repo))
    assert repo.git("config", "envhist.watcher") == "false"


def test_status_prints_why_the_watcher_cannot_run(repo: Repo) -> None:
    repo.git("config", "envhist.watcher", "true")
    repo.run("envlog", "capture", "-m", "x", check=False)
    stop(state_of(repo))
    note_failure(state_of(repo), "no inotify watches are left")
    assert "cannot follow this environment: no inotify watches are left" in repo.run("envlog", "status").out


def test_uninstalled_watcher_ends(installed: Repo) -> None:
    assert installed.run("envlog", "uninstall", "--watcher").out == "the watcher is stopped\n"
    assert ends(installed)
    assert status(installed) is None
    installed.run("envlog", "capture", "-m", "x")
    assert status(installed) is None


def test_watcher_ends_after_the_configured_time_without_a_question(repo: Repo) -> None:
    repo.git("config", "envhist.watcherIdle", "1s")
    repo.run("envlog", "install", "--watcher", check=True)
    assert ends(repo)


def test_second_watcher_of_a_working_tree_ends_at_once(installed: Repo) -> None:
    before = status(installed)
    installed.run("envlog", "install", "--watcher")
    after = status(installed)
    assert before is not None
    assert after is not None
    assert before["process"] == after["process"]


START = """
import sys
from git_envhist.watcher.start import start
from tests.watcher.helpers import open_history
start(open_history(sys.argv[1]).repository)
"""


def test_watcher_keeps_nothing_open_that_its_caller_had_open(repo: Repo) -> None:
    reading, writing = os.pipe()
    lines, stdout = os.pipe()
    words = [sys.executable, "-c", START, str(repo.path)]
    subprocess.run(words, check=True, stdout=stdout, pass_fds=[writing])
    os.close(writing)
    os.close(stdout)
    assert wait_until_running(state_of(repo))
    try:
        # The end of a pipe can be read as soon as no process has its other end.
        assert select.select([reading, lines], [], [], 0)[0] == [reading, lines]
    finally:
        stop(state_of(repo))
        os.close(reading)
        os.close(lines)


def test_failure_is_reported_with_its_reason(repo: Repo) -> None:
    repo.write("root/file", "x")
    repo.git("config", "envhist.root.inside", "root")
    done = repo.run("envlog", "install", "--watcher", check=False)
    assert done.status == 128
    assert not repo.git("config", "envhist.watcher", check=False)
    assert "one root of the environment contains another" in done.err


def test_watcher_is_combined_with_no_hooks(repo: Repo) -> None:
    done = repo.run("envlog", "install", "--watcher", "--agent", "codex", check=False)
    assert done.status == 129


def test_dry_run_prints_the_setting(repo: Repo) -> None:
    assert repo.run("envlog", "install", "--watcher", "-n").out == "git config --local envhist.watcher true\n"
    assert (
        repo.run("envlog", "uninstall", "--watcher", "-n").out
        == "git config --local --unset envhist.watcher\n"
    )
