"""The versions of git that tests can run with: the system's, and those that `.ci/gits` has put into a directory."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

# Read at import, because tests do not inherit this environment.
PLACE = os.environ.get("ENVHIST_TEST_GITS", "")


@dataclass(frozen=True, slots=True)
class OtherGit:
    """A git program: its path (None: the one on the PATH), and its version."""

    directory: Path | None
    version: tuple[int, ...]

    def __str__(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def has_reftable(self) -> bool:
        return self.version >= (2, 45)

    def put_first(self, patch: pytest.MonkeyPatch) -> None:
        """Make this the git that the test and its programs find."""
        if self.directory is not None:
            patch.setenv("PATH", f"{self.directory}{os.pathsep}{os.environ['PATH']}")


@cache
def gits() -> tuple[OtherGit, ...]:
    """Return every available git, the system's first."""
    others = sorted(Path(PLACE).glob("*/bin/git")) if PLACE else []
    found = [OtherGit(None, _version("git")), *(OtherGit(one.parent, _version(str(one))) for one in others)]
    unique = {git.version: git for git in reversed(found)}
    return tuple(sorted(unique.values(), key=lambda git: (git.directory is not None, git.version)))


def _version(program: str) -> tuple[int, ...]:
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(word) for word in printed.split()[2].split(".")[:3] if word.isdecimal())


def git_with_reftable() -> OtherGit:
    """Return the newest git that knows reftable; skip the test if there is none."""
    found = [git for git in gits() if git.has_reftable]
    if not found:
        pytest.skip("no git here knows reftable (2.45 and newer): .ci/gits fetches one")
    return max(found, key=lambda git: git.version)
