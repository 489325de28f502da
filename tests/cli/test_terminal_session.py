"""Behaviour on a terminal: the pager, the width, and signals."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.repository import Repo


def on_terminal(
    repo: Repo, *words: str, columns: int = 80, env: dict[str, str] | None = None
) -> tuple[str, int]:
    """Run a command on a terminal; return its output and its status."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**repo.env, "TERM": "xterm", **(env or {})}
    with subprocess.Popen(
        words, cwd=repo.path, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        status = child.wait()
    os.close(ours)
    return shown.decode().replace("\r\n", "\n"), status


@pytest.fixture
def captured(repo: Repo) -> Repo:
    repo.run("envlog", "capture", "the first of all moments", check=True)
    return repo


def write_pager(repo: Repo) -> str:
    """Return the path of a pager that stores its input and environment."""
    place = repo.path.parent / "pager"
    place.write_text(f'#!/bin/sh\necho "LESS=$LESS LV=$LV" > {place}.said\nexec cat > {place}.got\n')
    place.chmod(0o755)
    return str(place)


def test_list_uses_the_pager_of_git(captured: Repo) -> None:
    pager = write_pager(captured)
    captured.git("config", "core.pager", pager)
    shown, status = on_terminal(captured, "git-envlog")
    assert (shown, status) == ("", 0)
    assert "the first of all moments" in Path(pager + ".got").read_text()
    assert Path(pager + ".said").read_text() == "LESS=FRX LV=-c\n"
    # The pager shows colours, as git's does.
    assert Path(pager + ".got").read_text().startswith("\x1b[33m")


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (("git-envlog", "--no-pager"), {}),
        (("git-envlog", "-P"), {}),
        (("git", "-P", "envlog"), {}),
        (("git-envlog",), {"GIT_PAGER": "cat"}),
        (("git-envlog",), {"GIT_PAGER": ""}),
        (("git-envlog",), {"GIT_PAGER_IN_USE": "true"}),
        (("git-envlog", "show", "-P"), {}),
    ],
)
def test_pager_is_not_used_when_git_would_use_none(
    captured: Repo, words: tuple[str, ...], env: dict[str, str]
) -> None:
    pager = write_pager(captured)
    captured.git("config", "core.pager", pager)
    shown, status = on_terminal(captured, *words, env=env)
    assert status == 0
    assert "the first of all moments" in shown
    assert not Path(pager + ".got").exists()


def test_pager_of_git_itself_is_not_doubled(captured: Repo) -> None:
    pager = write_pager(captured)
    captured.git("config", "core.pager", pager)
    shown, status = on_terminal(captured, "git", "-p", "envlog")
    assert (shown, status) == ("", 0)
    assert Path(pager + ".got").read_text().startswith("\x1b[33m")


def test_a_pager_that_stops_reading_is_no_error(captured: Repo) -> None:
    shown, status = on_terminal(captured, "git-envlog", env={"GIT_PAGER": "true"})
    assert shown == ""
    assert status in (0, 141)


def test_missing_pager_is_a_warning(captured: Repo) -> None:
    shown, status = on_terminal(captured, "git-envlog", env={"GIT_PAGER": "no-such-pager"})
    assert status == 0
    assert "warning: cannot run the pager 'no-such-pager'" in shown
    assert "the first of all moments" in shown


def test_lines_fit_the_terminal(captured: Repo) -> None:
    shown, _ = on_terminal(captured, "git-envlog", "-P", "--no-color", columns=40)
    (line,) = shown.splitlines()
    assert len(line) <= 40
    assert "…" in line


def test_a_dumb_terminal_gets_no_colour(captured: Repo) -> None:
    shown, _ = on_terminal(captured, "git-envlog", "-P", env={"TERM": "dumb"})
    assert "\x1b" not in shown


@contextmanager
def held_open(fifo: Path) -> Iterator[None]:
    """Wait until the program listens for signals."""
    while True:
        try:
            writing = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            # The output is not read yet.
            time.sleep(0.01)
    try:
        yield
    finally:
        os.close(writing)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_capture_cleanly(repo: Repo, number: signal.Signals, status: int) -> None:
    # Reading the FIFO blocks the capture, so that the signal arrives then.
    os.mkfifo(repo.path / "fifo")
    child = subprocess.Popen(
        ["git-envlog", "capture", "x", "--attach", "fifo"],
        cwd=repo.path, env=repo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with held_open(repo.path / "fifo"):
        child.send_signal(number)
        out, err = child.communicate()
    assert (child.returncode, out, err) == (status, b"", b"")
    (repo.path / "fifo").unlink()
    repo.run("envlog", "capture", "y", check=True)
    repo.git("fsck", "--strict")
