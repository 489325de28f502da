"""A command of the user is followed to its exit, and its session is ended with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from git_envhist.child_command import NOT_EXECUTABLE, SHELL, ChildCommand, OutputTail
from tests.checks.test_check_command import is_gone


def output_of(child: ChildCommand, *, seconds: float | None = None) -> tuple[bool, bytes]:
    """Return whether the command exited in time, and its output."""
    parts: list[bytes] = []
    deadline = None if seconds is None else time.monotonic() + seconds
    return child.follow(lambda _source, data: parts.append(data), deadline=deadline), b"".join(parts)


def test_output_is_read_to_the_exit_and_the_status_is_kept() -> None:
    with ChildCommand.start([*SHELL, "echo out; echo err >&2; exit 3"]) as child:
        assert output_of(child) == (True, b"out\nerr\n")
        assert child.wait() == 3


def test_background_process_with_open_output_is_not_waited_for() -> None:
    with ChildCommand.start([*SHELL, "sleep 60 & echo $!"]) as child:
        exited, output = output_of(child)
        os.kill(int(output), signal.SIGKILL)
        assert (exited, child.wait()) == (True, 0)


def test_end_of_the_session_ends_background_processes_after_the_shell() -> None:
    command = "(trap '' HUP; sleep 60) & echo $!; exec sleep 60"
    with ChildCommand.start([*SHELL, command], session=True) as child:
        exited, output = output_of(child, seconds=0.2)
        assert not exited
        assert os.getsid(int(output)) == child.process
        child.end_group()
        assert child.wait() == -signal.SIGTERM
        assert is_gone(int(output))


def test_command_without_session_is_in_the_group_of_its_caller() -> None:
    with ChildCommand.start([*SHELL, "sleep 60"]) as child:
        assert os.getpgid(child.process) == os.getpgid(0)
        os.kill(child.process, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL


def test_child_that_cannot_become_the_command_ends() -> None:
    def fail() -> None:
        raise RuntimeError

    with ChildCommand.start_on_terminal(fail) as child:
        assert output_of(child)[0]
        assert child.wait() == NOT_EXECUTABLE


def test_tail_counts_what_it_omits() -> None:
    tail = OutputTail(4)
    for data in (b"abc", b"defghi", b"j"):
        tail.take(data)
    assert (tail.text, tail.omitted) == (b"ghij", 6)


def test_signal_while_a_command_starts_takes_effect_afterwards_and_ends_the_command() -> None:
    script = (
        "import os, signal, sys\n"
        "from git_envhist import child_command\n"
        "popen = child_command.subprocess.Popen\n"
        "def stopped(*words, **options):\n"
        "    started = popen(*words, **options)\n"
        "    print(started.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('started', flush=True)\n"
        "    return started\n"
        "child_command.subprocess.Popen = stopped\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "child_command.ChildCommand.start(['sleep', '1000'], session=True)\n"
        "print('not reached')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    command, *said = done.stdout.split()
    assert (done.returncode, said) == (7, ["started"]), done.stderr
    assert not Path(f"/proc/{command}").exists()
