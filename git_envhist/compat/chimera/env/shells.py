"""Shells that stay: what one command sets, the next one finds."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path

from git_envhist.compat.chimera.results import CommandResult

MAIN = "main"
BLOCK = 1 << 16
INTERRUPTED = 124


class Shell:
    """One shell process that is given commands one after another."""

    def __init__(self, program: str, directory: Path) -> None:
        environment = {**os.environ, "HISTFILE": os.devnull}
        self._process = subprocess.Popen(
            [program],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, command: str, timeout: float) -> CommandResult:
        """What a command wrote, and its status."""
        mark = uuid.uuid4().hex
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\nprintf '\\n{mark} %d\\n' $?\n".encode())
        self._process.stdin.flush()
        return self._read_to(f"\n{mark} ".encode(), timeout)

    def end(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            # With all that was started in it: it is the first of a session of its own.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    @property
    def is_over(self) -> bool:
        """Whether a command ended it."""
        return self._process.poll() is not None

    def _read_to(self, mark: bytes, timeout: float) -> CommandResult:
        held = bytearray()
        until = time.monotonic() + timeout
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0:
                if not ready.select(left):
                    continue
                block = os.read(self._process.stdout.fileno(), BLOCK)
                held += block
                text, found, rest = bytes(held).partition(mark)
                if found and rest.endswith(b"\n"):
                    return CommandResult(text.decode("utf-8", "replace"), "", int(rest))
                if not block:
                    return CommandResult(held.decode("utf-8", "replace"), "", self._process.wait())
        return CommandResult(held.decode("utf-8", "replace"), "Command timed out", INTERRUPTED)


class Shells:
    """The shells of one environment, by their names."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = "/bin/bash"
        self._shells: dict[str, Shell] = {}

    @property
    def has_session(self) -> bool:
        return bool(self._shells)

    def start_session(self, shell: str = "/bin/bash", isolate_history: bool = True) -> None:
        """Start the first shell; it leaves no history in any case."""
        if self.has_session:
            raise RuntimeError("Session already active")
        self._program = shell
        self._shells[MAIN] = Shell(shell, self._directory)

    def end_session(self) -> None:
        """End all of them."""
        while self._shells:
            self._shells.popitem()[1].end()

    def create_shell(self, name: str) -> None:
        """Start one more."""
        if not self.has_session:
            raise RuntimeError("No active session")
        if name in self._shells:
            raise ValueError(f"Shell '{name}' already exists")
        self._shells[name] = Shell(self._program, self._directory)

    def list_shells(self) -> list[str]:
        return list(self._shells)

    def run_in_session(self, cmd: str, shell_name: str = MAIN, timeout: float = 120) -> CommandResult:
        """Run a command in one of them; after a time-out that one begins anew."""
        if not self.has_session:
            raise RuntimeError("No active session")
        if shell_name not in self._shells:
            raise ValueError(f"Shell '{shell_name}' not found")
        done = self._shells[shell_name].run(cmd, timeout)
        if self._shells[shell_name].is_over or (done.exit_code == INTERRUPTED and done.stderr):
            self._shells[shell_name].end()
            self._shells[shell_name] = Shell(self._program, self._directory)
        return done
