"""A real terminal: tmux, with keys sent to it and its screen read."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PATIENCE = 60.0
"""Timeout in seconds; a busy machine needs some of them."""
LOOK_AGAIN = 0.05


class Screen:
    """A program in a private terminal."""

    def __init__(
        self, place: Path, words: str, env: Mapping[str, str], columns: int, lines: int, socket: str
    ) -> None:
        self._tmux = ["tmux", "-f", os.devnull, "-L", socket]
        self._env = {**env, "TERM": "xterm-256color"}
        self._run(
            "new-session", "-d", "-s", "it", "-x", str(columns), "-y", str(lines), "-c", str(place),
            f"{words}; echo ended with $?; cat",
        )  # fmt: skip

    def type(self, *keys: str) -> None:
        """Press keys, named as tmux names them."""
        self._run("send-keys", "-t", "it", *keys)

    def write(self, text: str) -> None:
        self._run("send-keys", "-t", "it", "-l", text)

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-t", "it", "-x", str(columns), "-y", str(lines))

    def lines(self) -> list[str]:
        return self._run("capture-pane", "-p", "-t", "it").rstrip("\n").split("\n")

    def wait(self, fits: Callable[[str], bool]) -> str:
        """Wait until the predicate accepts the screen, and return the screen."""
        ends = time.monotonic() + PATIENCE
        while not fits(shown := "\n".join(self.lines())):
            assert time.monotonic() < ends, f"timed out waiting for the screen; it shows:\n{shown}"
            time.sleep(LOOK_AGAIN)
        return shown

    def see(self, *texts: str) -> str:
        """Wait until the screen shows these texts, and return it."""
        return self.wait(lambda shown: all(text in shown for text in texts))

    def program(self) -> int:
        """Return the id of the process in the foreground, below the shell."""
        shell = self._run("display-message", "-p", "-t", "it", "#{pane_pid}").strip()
        output = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", shell], capture_output=True, check=True, text=True
        )
        return int(output.stdout.split()[0])

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], env=self._env, capture_output=True, check=False)

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], env=self._env, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode("utf-8")


def wait_until_gone(program: int) -> None:
    """Wait for the end of a process that is not a child of this one."""
    try:
        descriptor = os.pidfd_open(program)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE)
        assert ready, "the program still runs without a terminal"
    finally:
        os.close(descriptor)
