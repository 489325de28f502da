"""System calls for which Python has no plain function."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.platform import read_or_stop


class Arrived(Exception):
    """Raised by the handler of the signal under test."""


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture
def unnoticed_signal() -> Iterator[None]:
    """Install a handler that raises, for a signal that interrupts no system call of this thread.

    For Python, this is a signal that arrives just before the system call begins.
    """

    def arrive(number: int, frame: object) -> None:
        raise Arrived

    before = signal.signal(signal.SIGUSR1, arrive)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_a_signal_stops_the_reading_of_a_pipe_that_has_no_data(fifo: Path, unnoticed_signal: None) -> None:
    def send() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        # Opening the writing end fails until the pipe is being read.
        while True:
            try:
                writing.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
                break
            except OSError:
                time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    writing: list[int] = []
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        with pytest.raises(Arrived):
            read_or_stop(fifo)
    finally:
        sender.join()
        os.close(writing[0])


def test_a_pipe_is_read_to_its_end(fifo: Path) -> None:
    def write() -> None:
        with open(fifo, "wb") as file:
            for part in (b"a", b"b" * 300_000, b"c"):
                file.write(part)
                file.flush()
                time.sleep(0.01)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert read_or_stop(fifo) == b"a" + b"b" * 300_000 + b"c"
    writer.join()


def test_a_directory_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_or_stop(tmp_path)
