"""In the place of `chimera.env.local`: a directory to work in, with checkpoints that outlast the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import ClassVar, Self

from git_envhist.compat.chimera.env.copies import (
    LEGACY_CHECKPOINT_DIRNAME,
    STATE_DIRNAME,
    above_copies,
    find_copy,
    places_of_copies,
    retained,
)
from git_envhist.compat.chimera.env.shells import Shells
from git_envhist.compat.chimera.info import CheckpointInfo
from git_envhist.compat.chimera.keeping import PathEscapes, told_as_os_errors
from git_envhist.compat.chimera.moments import NUMBER, EnvironmentCheckpoints
from git_envhist.compat.chimera.results import CommandResult, TestResult, read_test_output
from git_envhist.model import Snapshot
from git_envhist.values import once

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
