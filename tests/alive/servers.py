"""Database servers of the system's packages, run by an ordinary user without a port, and ended by their process."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import skip_without

NOBODY = 65534
PATIENCE_SECONDS = 60


def as_nobody() -> tuple[str, ...]:
    """Return the command prefix that runs a server without root privileges."""
    if os.geteuid() != 0:
        return ()
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")


def give_away(directory: Path) -> Path:
    """Make a directory that belongs to the user of the servers."""
    directory.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(directory, NOBODY, NOBODY)
    return directory


def program(name: str, *elsewhere: str) -> str:
    """Return the path of a program; skip the test if it is not installed."""
    found = shutil.which(name) or next(
        (path for place in elsewhere for path in sorted(glob.glob(place))), None
    )
    if found is None:
        skip_without(name)
    return found


def postgres_program(name: str) -> str:
    return program(name, f"/usr/lib/postgresql/*/bin/{name}")


def make_cluster(data: Path) -> None:
    """Make a new, empty cluster in a directory of its user."""
    words = (postgres_program("initdb"), "--no-locale", "-E", "UTF8", "-A", "trust", "-N", "-U", "test", "-D")
    run([*as_nobody(), *words, str(data)])


@contextmanager
def postgres(data: Path, sockets: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server on a cluster and stop it with a fast shutdown."""
    words = [postgres_program("postgres"), "-D", str(data), "-k", str(sockets), "-c", "listen_addresses="]
    asking = [postgres_program("pg_isready"), "-q", "-h", str(sockets)]
    with serving(words, lambda: subprocess.run(asking, check=False).returncode == 0, signal.SIGINT) as server:
        yield server


def psql(sockets: Path, statement: str) -> None:
    run([postgres_program("psql"), "-q", "-h", str(sockets), "-U", "test", "-c", statement, "postgres"])


@contextmanager
def redis(data: Path, socket: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server that writes each change to its log."""
    words = [program("redis-server"), "--port", "0", "--unixsocket", str(socket), "--dir", str(data)]
    words += ["--appendonly", "yes", "--appendfsync", "no", "--unixsocketperm", "777"]
    asking = [program("redis-cli"), "-s", str(socket), "ping"]

    def answers() -> bool:
        return subprocess.run(asking, capture_output=True, check=False).stdout == b"PONG\n"

    with serving(words, answers, signal.SIGTERM) as server:
        yield server


def redis_cli(socket: Path, *words: str) -> None:
    run([program("redis-cli"), "-s", str(socket), *words])


@contextmanager
def serving(
    words: list[str], ready: Callable[[], bool], stop: signal.Signals
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*as_nobody(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    ) as server:
        try:
            wait_until(lambda: server.poll() is not None or ready())
            assert server.poll() is None, f"{words[0]} did not start"
            yield server
        finally:
            server.send_signal(stop)
            server.wait()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "timed out waiting for the server"
        time.sleep(0.02)


def run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr.decode(errors="replace")
