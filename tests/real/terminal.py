"""Run a program on a terminal of its own: answer what terminals are asked, and press keys."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path

ESCAPE, ENTER, DOWN = b"\x1b", b"\r", b"\x1b[B"
# What a terminal answers: its cursor, its kind, its colours.
ANSWERS = (
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[c", b"\x1b[?62;c"),
    (b"\x1b[?u", b"\x1b[?0u"),
    (b"\x1b]10;?", b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
    (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
)


class Terminal:
    """A program on a terminal."""

    def __init__(self, process: int, descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.output = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def press(self, keys: bytes) -> None:
        with suppress(OSError):
            os.write(self._descriptor, keys)

    def wait(self, happened: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def end(self) -> None:
        """Hang up, as a closed window does; kill what stays."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            with suppress(OSError):
                os.killpg(self.process, number)
            if self.wait(self._is_gone, 10):
                break
        with suppress(OSError):
            os.close(self._descriptor)

    def _is_gone(self) -> bool:
        try:
            return os.waitpid(self.process, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while True:
                select.select([self._descriptor], [], [])
                data = os.read(self._descriptor, 1 << 16)
                if not data:
                    return
                self.output += data
                for question, answer in ANSWERS:
                    for _ in range(data.count(question)):
                        self.press(answer)


@contextmanager
def terminal(words: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a program on a terminal of 120 columns until the context ends."""
    process, descriptor = pty.fork()
    if process == 0:
        try:
            os.chdir(cwd)
            os.execvpe(words[0], list(words), dict(environ))
        finally:
            os._exit(127)
    ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    one = Terminal(process, descriptor)
    try:
        yield one
    finally:
        one.end()
