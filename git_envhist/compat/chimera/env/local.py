"""Replacement for `chimera.env.local`: work in a directory, with checkpoints that survive the process."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

from git_envhist.compat.chimera.storage import (
    NUMBER,
    CheckpointInfo,
    CommandResult,
    EnvironmentCheckpoints,
    PathEscapes,
    TestResult,
    errors_as_os_errors,
    read_test_output,
)
from git_envhist.lazy import once
from git_envhist.model import Snapshot

# Copies that chimera itself stored in a directory, by number, and the number of checkpoints to keep.

STATE_DIRNAME, LEGACY_CHECKPOINT_DIRNAME = ".chimera", ".chimera_checkpoints"
CONFIG = "config.toml"


def places_of_copies(root: str) -> tuple[str, str]:
    """Return the places of such copies, the newer format first."""
    return os.path.join(root, STATE_DIRNAME, "checkpoints"), os.path.join(root, LEGACY_CHECKPOINT_DIRNAME)


def find_copy(root: str, number: str) -> str | None:
    """Return the path of a numbered copy."""
    found = (os.path.join(place, number) for place in places_of_copies(root) if number.isdecimal())
    return next((place for place in found if os.path.isdir(place)), None)


def above_copies(root: str) -> int:
    """Return the lowest number above all copies."""
    return max((number + 1 for place in places_of_copies(root) for number in _numbers(place)), default=0)


def retained(root: str) -> int | None:
    """Return the number of checkpoints to keep: `[storage.checkpoints] retain`, of the project first."""
    places = (root, os.path.expanduser("~"))
    counts = (_retain(os.path.join(place, STATE_DIRNAME, CONFIG)) for place in places)
    return next((count for count in counts if count is not None), None)


def _numbers(directory: str) -> Iterator[int]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _retain(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            counts = tomllib.load(file)
        count = counts["storage"]["checkpoints"]["retain"]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) and count > 0 else None


# Persistent shells: a command sees variables that an earlier one set.

MAIN = "main"
BLOCK = 1 << 16
INTERRUPTED = 124


class Shell:
    """A shell process that runs commands one after another."""

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
        """Run a command; return its output and status."""
        mark = uuid.uuid4().hex
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\nprintf '\\n{mark} %d\\n' $?\n".encode())
        self._process.stdin.flush()
        return self._read_to(f"\n{mark} ".encode(), timeout)

    def end(self) -> None:
        """Kill the shell."""
        with suppress(ProcessLookupError):
            # Kill the whole session, which includes everything that was started in it.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    @property
    def is_over(self) -> bool:
        """Return whether a command ended the shell."""
        return self._process.poll() is not None

    def _read_to(self, mark: bytes, timeout: float) -> CommandResult:
        output = bytearray()
        until = time.monotonic() + timeout
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0:
                if not ready.select(left):
                    continue
                block = os.read(self._process.stdout.fileno(), BLOCK)
                output += block
                text, found, rest = bytes(output).partition(mark)
                if found and rest.endswith(b"\n"):
                    return CommandResult(text.decode("utf-8", "replace"), "", int(rest))
                if not block:
                    return CommandResult(output.decode("utf-8", "replace"), "", self._process.wait())
        return CommandResult(output.decode("utf-8", "replace"), "Command timed out", INTERRUPTED)


class Shells:
    """The shells of one environment, by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = "/bin/bash"
        self._shells: dict[str, Shell] = {}

    @property
    def has_session(self) -> bool:
        return bool(self._shells)

    def start_session(self, shell: str = "/bin/bash", isolate_history: bool = True) -> None:
        """Start the first shell; it never writes a history file."""
        if self.has_session:
            raise RuntimeError("Session already active")
        self._program = shell
        self._shells[MAIN] = Shell(shell, self._directory)

    def end_session(self) -> None:
        """Kill all shells."""
        while self._shells:
            self._shells.popitem()[1].end()

    def create_shell(self, name: str) -> None:
        """Start another shell."""
        if not self.has_session:
            raise RuntimeError("No active session")
        if name in self._shells:
            raise ValueError(f"Shell '{name}' already exists")
        self._shells[name] = Shell(self._program, self._directory)

    def list_shells(self) -> list[str]:
        return list(self._shells)

    def run_in_session(self, cmd: str, shell_name: str = MAIN, timeout: float = 120) -> CommandResult:
        """Run a command in a shell; after a timeout the shell is restarted."""
        if not self.has_session:
            raise RuntimeError("No active session")
        if shell_name not in self._shells:
            raise ValueError(f"Shell '{shell_name}' not found")
        done = self._shells[shell_name].run(cmd, timeout)
        if self._shells[shell_name].is_over or (done.exit_code == INTERRUPTED and done.stderr):
            self._shells[shell_name].end()
            self._shells[shell_name] = Shell(self._program, self._directory)
        return done


WORKSPACE_STATE_DIRS = frozenset({STATE_DIRNAME, LEGACY_CHECKPOINT_DIRNAME})
NOT_SOURCE_DIRS = frozenset(
    (
        *(".git", ".hg", ".svn", ".venv", "venv", ".virtualenv", "site-packages", ".eggs", "node_modules"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".cache", ".idea"),
        *(".vscode", ".chimera", ".chimera_checkpoints", ".antigravitycli", ".next", ".nuxt", ".svelte-kit"),
        *(".gradle", ".astro", "dist", "build", "target"),
    )
)
CHECKPOINT_EXCLUDED_DIRS = NOT_SOURCE_DIRS | WORKSPACE_STATE_DIRS
CHECKPOINT_SIZE_WARN_BYTES = 256 * 1024 * 1024
OWN = "/.git"
"""The repository whose root is this directory; a nested one belongs to its content."""


class LargeCheckpointWarning(UserWarning):
    """A checkpoint stored more than `CHECKPOINT_SIZE_WARN_BYTES`."""


class LocalEnvironment(Shells):
    """A directory of this machine."""

    excluded: ClassVar[frozenset[str]] = CHECKPOINT_EXCLUDED_DIRS
    """Directory names, at any depth, that no checkpoint contains and no restore changes."""

    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        test_cmd: str = "python -m pytest",
        timeout: int = 300,
        session: bool = False,
        *,
        working_dir: str | os.PathLike[str] | None = None,
        retain: int | None = None,
    ) -> None:
        """`working_dir` is `workdir` as the documentation spells it; `retain` limits the number of checkpoints."""
        place = workdir if workdir is not None else working_dir
        if place is None:
            raise TypeError("LocalEnvironment() needs a workdir")
        self.workdir = Path(place).resolve()
        self.test_cmd = test_cmd
        self.timeout = timeout
        self.retain = retain
        self._use_session = session
        self._checkpoint_dir: Path | None = None
        super().__init__(self.workdir)

    @once
    def _checkpoints(self) -> EnvironmentCheckpoints:
        patterns = [f"{name}/" for name in sorted(self.excluded - {".git"})]
        return EnvironmentCheckpoints(str(self.workdir), [*patterns, OWN])

    def setup(self) -> None:
        """Create the directory if needed."""
        self.workdir.mkdir(parents=True, exist_ok=True)
        # The place where the original library stores copies. None are created here; existing ones can be restored.
        self._checkpoint_dir = Path(places_of_copies(str(self.workdir))[0])
        if self._use_session:
            self.start_session()

    def cleanup(self) -> None:
        """Kill the shells."""
        if self.has_session:
            self.end_session()

    def __enter__(self) -> Self:
        self.setup()
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def read_file(self, path: str) -> str:
        """Return the text of a file."""
        full = self._contain(path)
        if not full.exists():
            raise FileNotFoundError(f"File not found: {path}")
        return full.read_text()

    def write_file(self, path: str, content: str) -> None:
        """Write a file, and create its directories."""
        full = self._contain(path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(content)

    def list_files(self, pattern: str = "**/*") -> list[str]:
        """Return the files that match a pattern, as paths below the directory."""
        found = (path.relative_to(self.workdir) for path in self.workdir.glob(pattern) if path.is_file())
        copies = places_of_copies("")
        return sorted(str(path) for path in found if not str(path).startswith(copies))

    def run_command(self, cmd: str, timeout: int | None = None, shell_name: str = "main") -> CommandResult:
        """Run a shell command in the directory."""
        limit = timeout or self.timeout
        if self.has_session:
            return self.run_in_session(cmd, shell_name=shell_name, timeout=limit)
        try:
            done = subprocess.run(
                cmd,
                shell=True,
                capture_output=True,
                text=True,
                errors="replace",
                cwd=self.workdir,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return CommandResult("", "Command timed out", 124)
        return CommandResult(done.stdout, done.stderr, done.returncode)

    def run_tests(self) -> TestResult:
        """Run the tests and count the results."""
        return read_test_output(self.run_command(self.test_cmd))

    def checkpoint(self) -> str:
        """Capture the directory; return the number for `restore`."""
        with errors_as_os_errors():
            taken, new = self._checkpoints.take(above_copies(str(self.workdir)))
            keep = self.retain if self.retain is not None else retained(str(self.workdir))
            if keep is not None:
                self._checkpoints.keep_newest(max(1, keep))
        if new > CHECKPOINT_SIZE_WARN_BYTES:
            message = f"a checkpoint stored {new / 1048576:.0f} MB; `retain` limits how many are kept"
            warnings.warn(message, LargeCheckpointWarning, stacklevel=2)
        return self._id_of(taken)

    def restore(self, checkpoint_id: str) -> None:
        """Restore the directory; raises `ValueError` if there is no such checkpoint."""
        if self.workdir in {Path("/"), Path("~").expanduser().resolve()}:
            raise PermissionError(f"Refusing to restore: workdir {self.workdir} is root or HOME")
        wanted = str(checkpoint_id)
        copied = find_copy(str(self.workdir), wanted)
        with errors_as_os_errors():
            found = self._checkpoints.find(wanted)
            if found is None and copied is None:
                raise ValueError(f"Checkpoint {checkpoint_id} not found")
            if found is None:
                self._checkpoints.restore(self._checkpoints.take_from_copy(copied or "", wanted))
            else:
                self._checkpoints.restore(found)

    def clone(self) -> LocalEnvironment:
        """Copy the directory next to it; return an environment for the copy."""
        place = tempfile.mkdtemp(prefix="chimera-clone-", dir=self.workdir.parent)
        copied = self._copy_to(place)
        copied.setup()
        return copied

    def label(self, info: CheckpointInfo) -> None:
        """Store the name of a checkpoint."""
        with errors_as_os_errors():
            found = self._checkpoints.find(info.id)
            if found is not None:
                self._checkpoints.label(found, info)

    def labels(self) -> list[CheckpointInfo]:
        """Return the named checkpoints, oldest first."""
        with errors_as_os_errors():
            return self._checkpoints.labels()

    def remove_labels(self) -> None:
        """Delete the names; the checkpoints are kept."""
        with errors_as_os_errors():
            self._checkpoints.remove_labels()

    def _id_of(self, snapshot: Snapshot) -> str:
        return dict(snapshot.meta)[NUMBER]

    def _copy_to(self, place: str) -> LocalEnvironment:
        left = shutil.ignore_patterns(*WORKSPACE_STATE_DIRS)
        shutil.copytree(self.workdir, place, symlinks=True, dirs_exist_ok=True, ignore=left)
        return type(self)(place, self.test_cmd, self.timeout)

    def _contain(self, path: str) -> Path:
        full = (self.workdir / path).resolve()
        if not full.is_relative_to(self.workdir):
            raise PathEscapes(path)
        return full
