"""Lines printed by background programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator


class Talk:
    """The output of a program so far."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._rest = b""
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)

    def lines(self) -> Iterator[bytes]:
        """Yield every complete line since the last call."""
        assert self._child.stdout is not None
        assert self._child.poll() is None, "a program ended too early"
        lines = (self._rest + (self._child.stdout.read() or b"")).split(b"\n")
        self._rest = lines.pop()
        yield from lines


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill a program and close its pipes."""
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
