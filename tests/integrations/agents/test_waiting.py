"""A process that waits for the next tool of an agent: it answers hooks of the same environment, and no others."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, SOL_SOCKET, socket, socketpair

import pytest

from git_envhist import EnvHistory
from git_envhist.handlers.agent_client import (
    DONE,
    SO_PEERPIDFD,
    SOCKET,
    TAKEN,
    WAIT,
    await_done,
    encode_request,
    environment_of,
    has_same_restrictions,
    restrictions_of,
    with_short_path,
)
from git_envhist.handlers.agent_server import may_wait
from git_envhist.platform import SYSTEM
from tests.integrations.agents.test_called import LONG, Working, hooks_of
from tests.support.repository import Repo

pytestmark = pytest.mark.skipif(not SYSTEM.proc, reason="the system does not tell who asks")


@pytest.fixture
def here(repo: Repo, tmp_path: Path) -> Iterator[Working]:
    """A working tree in which the first tool started a process that waits."""
    repo.git("config", "envhist.agentIdle", "1m")
    found = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    repo.write("f", "first\n")
    found.call("claude-code", "before", tool_use_id="1")
    wait_until(lambda: answers(repo))
    yield found
    for path in waiting(repo):
        path.unlink()


def waiting(repo: Repo) -> list[Path]:
    return list((hooks_of(repo) / "spool").glob(f"{SOCKET}*"))


def answers(repo: Repo) -> bool:
    """Return whether a process accepts connections; whoever sends nothing gets no answer."""
    for path in waiting(repo):
        with socket(AF_UNIX, SOCK_STREAM) as connection:
            if connected(connection, path):
                return True
    return False


def connected(connection: socket, path: Path) -> bool:
    with suppress(OSError):
        with_short_path(str(path), connection.connect)
        return True
    return False


def may_start(repo: Repo) -> bool:
    """Return whether a process begins to wait within a second."""
    until = time.monotonic() + 1
    while time.monotonic() < until and not waiting(repo):
        time.sleep(0.05)
    return bool(waiting(repo))


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def replace_program(repo: Repo, tmp_path: Path) -> Path:
    """Put another program in the place of ours; return the file that it writes when it is started."""
    program, started = tmp_path / "program", tmp_path / "started"
    program.write_text(f"#!/bin/sh\ncat >{started}\n")
    program.chmod(0o755)
    script = hooks_of(repo) / "agent-claude-code"
    script.write_text(re.sub(r"program=/\S+", f"program={program}", script.read_text()))
    return started


def count(repo: Repo) -> int:
    return len(EnvHistory.open(str(repo.path), one_command=True).log())


def test_second_tool_is_answered_by_the_process_that_waits(here: Working, tmp_path: Path) -> None:
    started = replace_program(here.repo, tmp_path)
    here.repo.write("f", "second\n")
    here.call("claude-code", "before", tool_use_id="2", then="echo third >f")
    newest = EnvHistory.open(str(here.repo.path), one_command=True).log()[0]
    assert here.repo.git("cat-file", "blob", f"{newest.tree}:f") == "second"
    assert not started.exists()


def test_path_of_any_length_is_answered(repo: Repo, tmp_path: Path) -> None:
    repo.env["XDG_DATA_HOME"] = str(tmp_path / ("long" * 40))
    repo.git("config", "envhist.agentIdle", "1m")
    found = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    found.call("claude-code", "before", tool_use_id="1")
    wait_until(lambda: answers(repo))
    for path in waiting(repo):
        path.unlink()


def test_tool_with_other_variables_starts_the_program(here: Working, tmp_path: Path) -> None:
    started = replace_program(here.repo, tmp_path)
    here.repo.env["PATH"] = f"{tmp_path}:{here.repo.env['PATH']}"
    here.call("claude-code", "before", tool_use_id="2")
    assert started.exists()


RESTRICTED = {
    "flag": ("setpriv", "--no-new-privs"),
    "capabilities": ("setpriv", "--bounding-set=-all", "--inh-caps=-all"),
    "groups": ("setpriv", "--groups=27"),
    "names": ("unshare", "--uts"),
    "umask": ("sh", "-c", 'umask 0007; exec "$@"', "sh"),
}
UNRESTRICTED = ("flag", "umask")
"""Restrictions that a process needs no capability to take."""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.parametrize("how", RESTRICTED)
def test_restricted_process_is_not_answered(here: Working, tmp_path: Path, how: str) -> None:
    if how not in UNRESTRICTED and os.geteuid() != 0:
        pytest.skip("needs root")
    started = replace_program(here.repo, tmp_path)
    script = hooks_of(here.repo) / "agent-claude-code"
    here.repo.write("f", "second\n")
    subprocess.run(
        [*RESTRICTED[how], script, "before"],
        input=b'{"session_id": "c-1", "tool_name": "Write", "cwd": "%b"}' % os.fsencode(here.repo.path),
        env=here.repo.env, cwd=here.repo.path, check=True,
    )  # fmt: skip
    assert started.exists()
    assert count(here.repo) == 1


LISTEN = """
import os, sys
from socket import AF_UNIX, SOCK_STREAM, socket
os.chdir(sys.argv[1])
listening = socket(AF_UNIX, SOCK_STREAM)
listening.bind(sys.argv[2])
listening.listen()
print("listening", flush=True)
connection, _ = listening.accept()
connection.settimeout(20)
print(len(connection.recv(1 << 16)), flush=True)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.parametrize("is_other_user", [True, False])
def test_variables_are_not_sent_to_a_process_of_another_user_or_a_sandbox(
    here: Working, tmp_path: Path, is_other_user: bool
) -> None:
    if is_other_user and os.geteuid() != 0:
        pytest.skip("needs root")
    started = replace_program(here.repo, tmp_path)
    (path,) = waiting(here.repo)
    path.unlink()
    code = LISTEN
    if is_other_user:
        code = code.replace("listening =", "os.setresuid(12345, 12345, 12345); listening =")
        path.parent.chmod(0o777)
    words = [] if is_other_user else ["setpriv", "--no-new-privs"]
    command = [*words, sys.executable, "-I", "-c", code, path.parent, path.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "listening\n"
        here.call("claude-code", "before", tool_use_id="2")
        assert other.stdout.readline() == "0\n"
    assert started.exists()


NEXT_ID = Path("/proc/sys/kernel/ns_last_pid")


def fork(work: Callable[[], None]) -> int:
    process = os.fork()
    if not process:
        try:
            work()
        finally:
            os._exit(0)
    return process


def fork_with_id(process: int) -> int | None:
    """Fork a process that waits, with the id of one that ended; None if another process took the id."""
    for _ in range(100):
        NEXT_ID.write_text(str(process - 1))
        made = fork(signal.pause)
        if made == process:
            return made
        os.kill(made, signal.SIGKILL)
        os.waitpid(made, 0)
    return None


def can_hold_a_process() -> bool:
    """Return whether the kernel gives a handle of the process at the other end of a socket (Linux 6.5)."""
    one, other = socketpair()
    with one, other, suppress(OSError):
        os.close(one.getsockopt(SOL_SOCKET, SO_PEERPIDFD))
        return True
    return False


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.access(NEXT_ID, os.W_OK) or not can_hold_a_process(),
    reason="cannot choose the id of a process",
)
def test_id_of_a_process_that_ended_names_no_other(tmp_path: Path) -> None:
    with socket(AF_UNIX, SOCK_STREAM) as listening, socket(AF_UNIX, SOCK_STREAM) as asking:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        ended = fork(lambda: asking.connect(str(tmp_path / "s")))
        os.waitpid(ended, 0)
        connection, _ = listening.accept()
        with connection:
            if (other := fork_with_id(ended)) is None:
                pytest.skip("another process took the id")
            try:
                assert restrictions_of(str(other)) == restrictions_of("self")
                assert not has_same_restrictions(connection)
            finally:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)


@pytest.mark.parametrize("is_own", [True, False])
def test_variables_are_never_taken_from_a_request(here: Working, is_own: bool) -> None:
    own = environment_of(here.repo.env | {"PWD": "x"})
    environment = own if is_own else own + b"\0PATH=/tmp"
    with socket(AF_UNIX, SOCK_STREAM) as connection:
        connection.settimeout(LONG)
        assert connected(connection, waiting(here.repo)[0])
        connection.sendall(encode_request(environment, b"/", b"{}", b""))
        assert connection.recv(len(TAKEN)) == (TAKEN if is_own else b"")


@pytest.mark.parametrize("data", [b"x" * 40, b"99999999999\n", b"-1\n" * 3, b"3\nab"])
def test_malformed_request_ends_no_process(here: Working, data: bytes) -> None:
    with socket(AF_UNIX, SOCK_STREAM) as connection:
        assert connected(connection, waiting(here.repo)[0])
        connection.sendall(data)
    here.repo.write("f", "second\n")
    here.call("claude-code", "before", tool_use_id="2")
    assert count(here.repo) == 2


def test_request_that_arrives_slowly_is_ended(here: Working) -> None:
    with socket(AF_UNIX, SOCK_STREAM) as connection:
        assert connected(connection, waiting(here.repo)[0])
        connection.sendall(b"99999\n")

        def is_ended() -> bool:
            try:
                connection.sendall(b"x")
            except OSError:
                return True
            return False

        wait_until(is_ended)


ANSWER_AFTER_CHANGE = """
import os, sys
from git_envhist.handlers import agent_server
agent_server._program_state = lambda: (os.stat(sys.argv[1]).st_mtime_ns,)
agent_server.TICK = 60.0
agent_server.wait_for_events(
    sys.argv[2], 60.0, os.environ, lambda: None, lambda data, descriptor: None
)
"""


def test_process_of_a_changed_program_answers_nothing(tmp_path: Path) -> None:
    program, spool = tmp_path / "program", tmp_path / "spool"
    program.touch()
    command = [sys.executable, "-c", ANSWER_AFTER_CHANGE, program, spool]

    def asked(path: Path) -> bytes:
        with socket(AF_UNIX, SOCK_STREAM) as connection:
            connection.settimeout(LONG)
            wait_until(lambda: connected(connection, path))
            # The process may end the connection before it has read the request.
            with suppress(ConnectionError):
                connection.sendall(encode_request(environment_of(os.environ), b"/", b"{}", b""))
                return connection.recv(len(TAKEN))
            return b""

    with subprocess.Popen(command) as server:
        wait_until(lambda: spool.is_dir() and any(spool.glob(f"{SOCKET}*")))
        (path,) = spool.glob(f"{SOCKET}*")
        assert asked(path) == TAKEN
        os.utime(program, (1, 1))
        assert asked(path) == b""
        assert server.wait(LONG) == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("messages", "handles"), [([], False), ([WAIT + b"3\n"], True), ([WAIT + b"3\n", DONE], True)]
)
def test_answer_without_a_message_starts_the_program(messages: list[bytes], handles: bool) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"".join(messages))
    os.close(writing)
    assert await_done(reading, lambda: os.read(reading, 64)) is handles
    os.close(reading)


def test_process_ends_with_the_session(here: Working) -> None:
    here.call("claude-code", "end")
    assert waiting(here.repo) == []


def test_process_ends_when_no_tool_came(repo: Repo, tmp_path: Path) -> None:
    repo.git("config", "envhist.agentIdle", "3s")
    found = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    found.call("claude-code", "before")
    wait_until(lambda: bool(waiting(repo)))
    wait_until(lambda: not waiting(repo))
    repo.git("config", "envhist.agentIdle", "0")
    found.call("claude-code", "before", tool_use_id="2")
    assert not may_start(repo)


def listen(path: Path) -> socket:
    made = socket(AF_UNIX, SOCK_STREAM)
    with_short_path(str(path), made.bind)
    made.listen(1)
    return made


def test_few_processes_wait(tmp_path: Path) -> None:
    assert may_wait(str(tmp_path))
    with ExitStack() as stack:
        for number in range(4):
            assert may_wait(str(tmp_path))
            stack.enter_context(listen(tmp_path / f"{SOCKET}{number}"))
        for _number in range(4):
            # The queues of these sockets are full in the end, because nothing accepts.
            assert not may_wait(str(tmp_path))


def test_socket_of_a_killed_process_does_not_count(tmp_path: Path) -> None:
    for number in range(4):
        listen(tmp_path / f"{SOCKET}{number}").close()
    assert may_wait(str(tmp_path))


REFUSING = """
import os, sys
from git_envhist.handlers import agent_server
agent_server.wait_for_events(sys.argv[1], 1.0, os.environ, lambda: None, lambda data, descriptor: None)
"""
NO_DESCRIPTORS = """
import os, resource, sys
from git_envhist.handlers import agent_server
def load():
    agent_server.TICK = 60.0
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass
agent_server.wait_for_events(sys.argv[1], 60.0, os.environ, load, lambda data, descriptor: None)
"""


def test_refused_requests_do_not_keep_the_process(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with subprocess.Popen([sys.executable, "-c", REFUSING, spool]) as server:
        wait_until(lambda: spool.is_dir() and any(spool.glob(f"{SOCKET}*")))
        (path,) = spool.glob(f"{SOCKET}*")

        def is_ended() -> bool:
            with socket(AF_UNIX, SOCK_STREAM) as connection:
                connected(connection, path)
            return server.poll() is not None

        wait_until(is_ended)
    assert not path.exists()


def test_process_without_descriptors_ends_and_leaves_no_socket(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with subprocess.Popen([sys.executable, "-c", NO_DESCRIPTORS, spool], stderr=subprocess.PIPE) as server:
        wait_until(lambda: spool.is_dir() and any(spool.glob(f"{SOCKET}*")))
        (path,) = spool.glob(f"{SOCKET}*")

        def is_ended() -> bool:
            with socket(AF_UNIX, SOCK_STREAM) as connection:
                connected(connection, path)
            return server.poll() is not None

        wait_until(is_ended)
        assert server.communicate()[1] == b""
        assert server.returncode == 0
    assert not path.exists()


def test_hook_without_the_module_starts_the_program(here: Working, tmp_path: Path) -> None:
    started = replace_program(here.repo, tmp_path)
    script = hooks_of(here.repo) / "agent-claude-code"
    script.write_text(re.sub(r"handlers=/\S+", "handlers=/nonexistent", script.read_text()))
    here.call("claude-code", "before", tool_use_id="2")
    assert started.exists()
