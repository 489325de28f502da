"""`git envlog run`: captures before and after a command, whose input, output and status are unchanged."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from git_envhist.integrations.run_with_snapshots import HeadAndTail
from tests.support.repository import Repo

TALK = "import sys; print('said'); print('told', file=sys.stderr); open('new', 'w').write('1'); sys.exit(3)"


def moments(repo: Repo) -> list[dict[str, object]]:
    return [dict(one) for one in json.loads(repo.run("envlog", "--json", check=True).out)]


def output_of(repo: Repo, tmp_path: Path, revision: str = "@") -> bytes:
    repo.run("envrestore", "--attachments", os.fspath(tmp_path / "kept"), revision, check=True)
    (only,) = (tmp_path / "kept").iterdir()
    return only.read_bytes()


def test_run_captures_before_and_after_and_returns_the_command_status(repo: Repo, tmp_path: Path) -> None:
    done = repo.run("envlog", "run", "-m", "try it", "--", sys.executable, "-c", TALK)
    assert (done.status, done.out) == (3, "said\n")
    assert "told\n" in done.err
    after, before = moments(repo)
    assert (before["intent"], before["trigger"], after["intent"], after["trigger"]) == (
        "before: try it",
        "run",
        "try it",
        "run",
    )
    assert after["env_changed"]["paths"] == [{"status": "A", "path": "new"}]  # type: ignore[index]
    assert after["meta"]["exit"] == "3"  # type: ignore[index]
    assert output_of(repo, tmp_path) in (b"said\ntold\n", b"told\nsaid\n")


def test_run_reuses_the_newest_snapshot_when_nothing_changed(repo: Repo) -> None:
    repo.run("envlog", "capture", "ready", check=True)
    repo.run("envlog", "run", "--", "true", check=True)
    assert [one["intent"] for one in moments(repo)] == ["true", "ready"]


def test_json_of_run_is_on_standard_output(repo: Repo) -> None:
    done = repo.run("envlog", "run", "--json", "--", sys.executable, "-c", TALK)
    answer = json.loads(done.out)
    assert (done.status, answer["status"], answer["after"]["snapshot"]["meta"]["exit"]) == (3, 3, "3")
    assert "said\n" in done.err


@pytest.mark.parametrize(
    ("words", "status"),
    [(["no-such-program"], 127), (["./app.py"], 126), (["sh", "-c", "kill -TERM $$"], 143)],
)
def test_failed_or_killed_command_has_the_status_of_a_shell(
    repo: Repo, words: list[str], status: int
) -> None:
    os.chmod(repo.path / "app.py", 0o644)
    assert repo.run("envlog", "run", "--", *words).status == status
    assert moments(repo)[0]["meta"]["exit"] == str(status)  # type: ignore[index]


def test_command_is_not_run_when_the_first_capture_fails(repo: Repo) -> None:
    done = repo.run("envlog", "run", "--", "touch", "ran", env={"GIT_DIR": os.fspath(repo.path / "none")})
    assert done.status == 128
    assert not (repo.path / "ran").exists()


def test_command_reads_our_input_and_its_background_processes_are_not_awaited(repo: Repo) -> None:
    script = "cat; sleep 1000 & echo $! > left"
    done = repo.run("envlog", "run", "--", "sh", "-c", script, input="typed\n")
    os.kill(int(repo.read("left")), signal.SIGKILL)
    assert (done.status, done.out) == (0, "typed\n")


def test_signal_is_forwarded_and_the_second_snapshot_is_taken(repo: Repo) -> None:
    script = "trap 'echo heard > heard; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    words = ("git-envlog", "run", "--", "sh", "-c", script)
    with subprocess.Popen(words, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait() == 7
    assert moments(repo)[0]["env_changed"]["paths"] == [{"status": "A", "path": "heard"}]  # type: ignore[index]


TERMINAL = """
import os, sys, termios
assert all(os.isatty(one) for one in (0, 1, 2)), "no terminal"
with open("/dev/tty", "w") as ours:
    ours.write("%d x %d, who? " % tuple(os.get_terminal_size()))
print("hello " + sys.stdin.readline().strip(), flush=True)
sys.stdin.readline()
"""


def test_command_on_a_terminal_gets_a_terminal_and_ctrl_c(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TERMINAL)
    child, master = pty.fork()
    if child == 0:
        os.chdir(repo.path)
        words = ("git-envlog", "run", "--", sys.executable, os.fspath(tmp_path / "program.py"))
        os.execvpe(words[0], words, repo.env)
    try:
        termios_size(master)
        read_until(master, b"70 x 20, who? ")
        os.write(master, b"Ada\n")
        read_until(master, b"hello Ada\r\n")
        os.write(master, b"\x03")
        read_until(master, b"KeyboardInterrupt")
        read_until(master, b"0.")  # the summary of the second snapshot
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    finally:
        os.close(master)
    kept = output_of(repo, tmp_path)
    assert b"who? " in kept
    assert b"hello Ada" in kept


def termios_size(master: int) -> None:
    import fcntl
    import struct
    import termios

    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 70, 0, 0))


def read_until(master: int, words: bytes) -> None:
    seen = b""
    while words not in seen:
        data = os.read(master, 1 << 16)
        assert data, seen
        seen += data


def test_long_output_keeps_its_beginning_and_end() -> None:
    kept = HeadAndTail(head=10, tail=10)
    for number in range(100):
        kept.take(b"%03d\n" % number)
    assert kept.text == b"000\n001\n00\n[380 bytes omitted]\n7\n098\n099\n"
    short = HeadAndTail(head=10, tail=10)
    short.take(b"short")
    assert short.text == b"short"


def test_run_verifies_the_second_snapshot(repo: Repo) -> None:
    done = repo.run("envlog", "run", "--verify", "test -e made", "--", "touch", "made")
    assert (done.status, done.out) == (0, "")
    assert [one["verify"]["status"] for one in moments(repo)[:1]] == ["pass"]  # type: ignore[index]
    assert moments(repo)[1]["verify"] is None
