"""A check's command runs to its end, is judged only by its exit status, and leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from git_envhist.checks.check_command import MAX_TAIL, RunOptions, environment_of, run_check
from git_envhist.checks.verdicts import CommandExit, exit_status, signal_of, verdict_status
from git_envhist.child_command import TERMINATION_SECONDS
from git_envhist.model import VerdictStatus
from tests.support.needs import require


def run_options(place: Path, **more: object) -> RunOptions:
    return RunOptions(str(place), dict(os.environ))._replace(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "status", "exit_code", "number"),
    [
        ("true", VerdictStatus.PASS, 0, None),
        ("echo '1 failed'; exit 0", VerdictStatus.PASS, 0, None),
        ("echo '0 failed'; exit 1", VerdictStatus.FAIL, 1, None),
        ("exit 2", VerdictStatus.FAIL, 2, None),
        ("exit 255", VerdictStatus.FAIL, 255, None),
        ("exit 125", VerdictStatus.ERROR, 125, None),
        ("./not-executable", VerdictStatus.ERROR, 126, None),
        ("no-such-program", VerdictStatus.ERROR, 127, None),
        ("kill -SEGV $$", VerdictStatus.ERROR, None, signal.SIGSEGV),
        ("sh -c 'kill -KILL $$'; exit $?", VerdictStatus.ERROR, 137, signal.SIGKILL),
    ],
)
def test_verdict_depends_on_the_exit_status_alone(
    tmp_path: Path, command: str, status: VerdictStatus, exit_code: int | None, number: int | None
) -> None:
    (tmp_path / "not-executable").write_text("")
    ended = run_check(command, run_options(tmp_path))
    assert (verdict_status(ended), ended.exit_code, signal_of(ended)) == (status, exit_code, number)


def test_missing_directory_is_an_error_and_no_failure(tmp_path: Path) -> None:
    ended = run_check("true", run_options(tmp_path / "gone"))
    assert verdict_status(ended) is VerdictStatus.ERROR
    assert ended.duration_ms is None
    assert b"could not be started" in ended.tail


def test_output_is_passed_on_and_its_end_is_kept(tmp_path: Path) -> None:
    came: list[bytes] = []

    def take(chunk: bytes) -> None:
        came.append(chunk)
        (tmp_path / "seen").touch()

    waits = "echo out; echo err >&2; while [ ! -e seen ]; do sleep 0.01; done"
    count = 20_000
    ended = run_check(f"{waits}; seq {count}", run_options(tmp_path, through=take))
    whole = b"".join(came)
    assert whole == b"out\nerr\n" + b"".join(b"%d\n" % number for number in range(1, count + 1))
    assert len(ended.tail) <= MAX_TAIL
    assert whole.endswith(b"\n" + ended.tail)
    assert len(ended.tail) > MAX_TAIL - 10


def test_endless_line_is_truncated(tmp_path: Path) -> None:
    ended = run_check("head -c 300000 /dev/zero | tr '\\0' x", run_options(tmp_path))
    assert ended.tail == b"x" * MAX_TAIL


def test_timeout_kills_all_processes(tmp_path: Path) -> None:
    started = time.monotonic()
    ended = run_check("sleep 1000 & echo $! > pid; wait", run_options(tmp_path, limit=0.3))
    assert (ended.timed_out, verdict_status(ended)) == (True, VerdictStatus.ERROR)
    assert time.monotonic() - started < 500
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_check_that_passed_after_its_timeout_is_no_pass() -> None:
    assert verdict_status(CommandExit(0, None, 9, timed_out=True)) is VerdictStatus.ERROR


def test_background_process_is_killed_without_waiting(tmp_path: Path) -> None:
    ended = run_check("sleep 1000 & echo $! > pid; echo done", run_options(tmp_path))
    assert (ended.exit_code, ended.tail) == (0, b"done\n")
    assert is_gone(int((tmp_path / "pid").read_text()))


UNTAKEN = """
import ctypes, os, sys
from git_envhist import child_command
from git_envhist.checks import check_command
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
child_command.TERMINATION_SECONDS = 60.0
ended = check_command.run_check("sleep 1000 & true", check_command.RunOptions(sys.argv[1], dict(os.environ)))
sys.exit(0 if ended.duration_ms < 60_000 else 1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has child subreapers")
def test_unreaped_zombies_are_not_waited_for(tmp_path: Path) -> None:
    # Orphans become children of this process, which never reaps them, as in many containers.
    assert subprocess.run([sys.executable, "-c", UNTAKEN, tmp_path], check=False).returncode == 0


def test_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    command = (
        "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $! > pid; while :; do sleep 1; done"
    )
    ended = run_check(command, run_options(tmp_path, limit=0.2))
    assert ended.timed_out
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert TERMINATION_SECONDS < 10


def test_command_has_no_terminal_and_no_input(tmp_path: Path) -> None:
    ended = run_check(
        "cat; test -t 0 || echo none; (: < /dev/tty) 2>/dev/null || echo no tty; pwd", run_options(tmp_path)
    )
    assert ended.tail.decode() == f"none\nno tty\n{tmp_path}\n"


def test_variables_of_one_git_command_are_not_passed_on(tmp_path: Path) -> None:
    set_by_git = {
        "GIT_DIR": "/x",
        "GIT_INDEX_FILE": "/y",
        "GIT_WORK_TREE": "/z",
        "GIT_PREFIX": "p/",
        "OLDPWD": "/",
    }
    given = environment_of({**set_by_git, "PATH": "/bin", "API_KEY": "k", "PWD": "/else"}, str(tmp_path))
    assert set(given) == {"PATH", "API_KEY", "PWD", "GIT_ENVHIST_CHECK"}
    assert given["PWD"] == str(tmp_path)


def test_no_descriptor_is_inherited(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as held:
        os.set_inheritable(held.fileno(), False)
        ended = run_check(
            f"ls /proc/self/fd | grep -cx {held.fileno()}" if sys.platform == "linux" else "echo 0",
            run_options(tmp_path),
        )
    assert ended.tail == b"0\n"


def test_exit_status_is_reported_as_by_a_shell() -> None:
    from git_envhist.checks.verdicts import NOT_RUN
    from tests.cli.moments import verdict

    assert exit_status(verdict(VerdictStatus.FAIL, exit_code=7)) == 7
    assert exit_status(verdict(VerdictStatus.ERROR, exit_code=None, signal=9)) == 137
    assert exit_status(verdict(VerdictStatus.ERROR, exit_code=None)) == NOT_RUN


def is_gone(process: int) -> bool:
    """Return whether a process has ended; a zombie has ended, a killed one is about to."""
    require("ps")
    for _ in range(100):
        told = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
        )
        if told.stdout.strip()[:1] in ("", "Z"):
            return True
        time.sleep(0.05)
    return False
