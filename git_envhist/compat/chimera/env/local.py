"""In the place of `chimera.env.local`: a directory to work in, with checkpoints that outlast the process."""

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
    read_test_output,
    told_as_os_errors,
)
from git_envhist.lazy import once
from git_envhist.model import Snapshot

# What chimera itself left in a directory: copies of it by numbers, and how many are to be kept.

STATE_DIRNAME, LEGACY_CHECKPOINT_DIRNAME = ".chimera", ".chimera_checkpoints"
CONFIG = "config.toml"


def places_of_copies(root: str) -> tuple[str, str]:
    """Where there may be some, the newer place first."""
    return os.path.join(root, STATE_DIRNAME, "checkpoints"), os.path.join(root, LEGACY_CHECKPOINT_DIRNAME)


def find_copy(root: str, number: str) -> str | None:
    """The copy of a number."""
    found = (os.path.join(place, number) for place in places_of_copies(root) if number.isdecimal())
    return next((place for place in found if os.path.isdir(place)), None)


def above_copies(root: str) -> int:
    """The lowest number that no copy has."""
    return max((number + 1 for place in places_of_copies(root) for number in _numbers(place)), default=0)


def retained(root: str) -> int | None:
    """How many checkpoints the user wants to be kept: `[storage.checkpoints] retain`, the project first."""
    places = (root, os.path.expanduser("~"))
    said = (_retain(os.path.join(place, STATE_DIRNAME, CONFIG)) for place in places)
    return next((count for count in said if count is not None), None)


def _numbers(directory: str) -> Iterator[int]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _retain(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            said = tomllib.load(file)
        count = said["storage"]["checkpoints"]["retain"]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) and count > 0 else None


# Shells that stay: what one command sets, the next one finds.

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
"""The repository that the directory is the top of; one further down is a part of what stands there."""


class LargeCheckpointWarning(UserWarning):
    """A checkpoint brought more than `CHECKPOINT_SIZE_WARN_BYTES` along."""


class LocalEnvironment(Shells):
    """A directory of this machine."""

    excluded: ClassVar[frozenset[str]] = CHECKPOINT_EXCLUDED_DIRS
    """Directories, at any depth, that no checkpoint holds and no restore touches."""

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
        """`working_dir` is `workdir`, as the documentation spells it; `retain`: no more checkpoints are kept."""
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
    def _moments(self) -> EnvironmentCheckpoints:
        patterns = [f"{name}/" for name in sorted(self.excluded - {".git"})]
        return EnvironmentCheckpoints(str(self.workdir), [*patterns, OWN])

    def setup(self) -> None:
        """Make the directory, where it is not there yet."""
        self.workdir.mkdir(parents=True, exist_ok=True)
        # Where theirs puts its copies. None are made here; those that are there are gone back to.
        self._checkpoint_dir = Path(places_of_copies(str(self.workdir))[0])
        if self._use_session:
            self.start_session()

    def cleanup(self) -> None:
        """End the shells."""
        if self.has_session:
            self.end_session()

    def __enter__(self) -> Self:
        self.setup()
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def read_file(self, path: str) -> str:
        """The text of a file."""
        full = self._contain(path)
        if not full.exists():
            raise FileNotFoundError(f"File not found: {path}")
        return full.read_text()

    def write_file(self, path: str, content: str) -> None:
        """Write a file, and the directories it needs."""
        full = self._contain(path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(content)

    def list_files(self, pattern: str = "**/*") -> list[str]:
        """The files that a pattern means, by their paths below the directory."""
        found = (path.relative_to(self.workdir) for path in self.workdir.glob(pattern) if path.is_file())
        copies = places_of_copies("")
        return sorted(str(path) for path in found if not str(path).startswith(copies))

    def run_command(self, cmd: str, timeout: int | None = None, shell_name: str = "main") -> CommandResult:
        """Run a command of the shell in the directory."""
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
        """Run the tests, and count."""
        return read_test_output(self.run_command(self.test_cmd))

    def checkpoint(self) -> str:
        """Keep the directory as it is; gives the number to come back by."""
        with told_as_os_errors():
            taken, new = self._moments.take(above_copies(str(self.workdir)))
            keep = self.retain if self.retain is not None else retained(str(self.workdir))
            if keep is not None:
                self._moments.keep_newest(max(1, keep))
        if new > CHECKPOINT_SIZE_WARN_BYTES:
            told = f"a checkpoint brought {new / 1_048_576:.0f} MB along; `retain` bounds how many are kept"
            warnings.warn(told, LargeCheckpointWarning, stacklevel=2)
        return self._id_of(taken)

    def restore(self, checkpoint_id: str) -> None:
        """Bring the directory back; `ValueError` where there is no such checkpoint."""
        if self.workdir in {Path("/"), Path("~").expanduser().resolve()}:
            raise PermissionError(f"Refusing to restore: workdir {self.workdir} is root or HOME")
        wanted = str(checkpoint_id)
        copied = find_copy(str(self.workdir), wanted)
        with told_as_os_errors():
            found = self._moments.find(wanted)
            if found is None and copied is None:
                raise ValueError(f"Checkpoint {checkpoint_id} not found")
            if found is None:
                self._moments.restore(self._moments.take_up(copied or "", wanted))
            else:
                self._moments.restore(found)

    def clone(self) -> LocalEnvironment:
        """A copy of the directory beside it, as an environment of its own."""
        place = tempfile.mkdtemp(prefix="chimera-clone-", dir=self.workdir.parent)
        copied = self._copy_to(place)
        copied.setup()
        return copied

    def label(self, info: CheckpointInfo) -> None:
        """Keep what a checkpoint is called."""
        with told_as_os_errors():
            found = self._moments.find(info.id)
            if found is not None:
                self._moments.label(found, info)

    def labels(self) -> list[CheckpointInfo]:
        """The checkpoints that are called something, oldest first."""
        with told_as_os_errors():
            return self._moments.labels()

    def remove_labels(self) -> None:
        """Forget what they are called; they themselves stay."""
        with told_as_os_errors():
            self._moments.remove_labels()

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
