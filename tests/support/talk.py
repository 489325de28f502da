"""Words printed by background programs, one per line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator


class Talk:
    """The output of a program, as far as it has come."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._rest = b""
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)

    def lines(self) -> Iterator[bytes]:
        """Every whole line since the last time."""
        assert self._child.stdout is not None
        assert self._child.poll() is None, "a program ended before its time"
        lines = (self._rest + (self._child.stdout.read() or b"")).split(b"\n")
        self._rest = lines.pop()
        yield from lines


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill a program and close its pipes."""
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
