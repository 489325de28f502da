"""Projects made with the usual tools, each with a copy from the time of its capture, which a restore is compared
with.

Where packages come from depends on the machine: pip and npm use the configuration that they had before the tests were
sealed off, each with a cache that one test run shares.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.needs import require
from tests.support.oracle import tree_differences
from tests.support.repository import Repo, Result, make_repo

FOREIGN = ("PYTHON", "VIRTUAL_ENV", "GIT_", "DJANGO_", "NODE_PATH", "CARGO_TARGET", "MAKE")
MACHINE = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
TOLD = 600


def find(program: str) -> str:
    """Return a program's path; skip the test if it is not installed."""
    return require(program, MACHINE.get("PATH"))


def tools(caches: Path) -> dict[str, str]:
    """Return the environment that package managers run in."""
    return {
        **MACHINE,
        "PIP_CACHE_DIR": str(caches / "pip"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # In a deliberately broken environment, pip must fail instead of changing the machine's packages.
        "PIP_REQUIRE_VIRTUALENV": "1",
        "UV_CACHE_DIR": str(caches / "uv"),
        "npm_config_cache": str(caches / "npm"),
        "npm_config_update_notifier": "false",
        "npm_config_fund": "false",
        "npm_config_audit": "false",
        "npm_config_prefer_offline": "true",
        "NO_COLOR": "1",
    }


@dataclass
class Project:
    """A project that was captured as `working`, and a copy from that time."""

    repo: Repo
    model: Path
    variables: dict[str, str]

    @property
    def path(self) -> Path:
        return self.repo.path

    def call(self, *words: str | Path, cwd: str = ".", check: bool = True, **more: str) -> Result:
        """Run one of the project's programs."""
        return call(self.path / cwd, {**self.variables, **more}, *words, check=check)

    def keep(self) -> None:
        """Capture the project, and copy it by a program other than git-envhist."""
        self.repo.run("envlog", "capture", "it works", "--name", "working", check=True)
        subprocess.run(["cp", "-a", "--reflink=auto", self.path, self.model], check=True)

    def differences(self, *without: str) -> tuple[str, ...]:
        """Return the differences from the copy that was made at the capture."""
        return tree_differences(self.model, self.path, without=("/.git", *without))

    def heal(self) -> None:
        """Restore the copy without git-envhist."""
        everything = ("-mindepth", "1", "-maxdepth", "1", "!", "-name", ".git", "-exec")
        subprocess.run(["find", self.path, *everything, "rm", "-rf", "{}", "+"], check=True)
        copy = ("cp", "-a", "--reflink=auto", "-t", self.path, "{}", "+")
        subprocess.run(["find", self.model, *everything, *copy], check=True)
        subprocess.run(["touch", "-m", "-r", self.model, self.path], check=True)


def call(place: Path, variables: dict[str, str], *words: str | Path, check: bool = True) -> Result:
    """Run a command."""
    done = subprocess.run(
        list(map(str, words)), cwd=place, env=variables, stdin=subprocess.DEVNULL, capture_output=True
    )
    result = Result(done.returncode, done.stdout, done.stderr)
    assert not check or done.returncode == 0, f"{words}\n{result.out}\n{result.err}"
    return result


def fetch(place: Path, variables: dict[str, str], *words: str | Path) -> None:
    """Run a package manager that needs a registry; skip the test if none can be reached."""
    done = call(place, variables, *words, check=False)
    if done.status != 0:
        pytest.skip(f"no packages can be had here: {words[0]}: {(done.err or done.out).strip()[-TOLD:]}")


def make_project(above: Path, variables: dict[str, str], build: Callable[[Project], None]) -> Project:
    """Make a repository, let `build` fill it, and capture it."""
    project = Project(make_repo(above / "project", commit=False), above / "model", variables)
    build(project)
    project.keep()
    return project


def make_venv(project: Project, *packages: str, name: str = ".venv") -> None:
    """Make a virtual environment with its own pip, and install packages in it."""
    done = project.call(sys.executable, "-m", "venv", name, check=False)
    if done.status != 0:
        pytest.skip("this Python makes no virtual environments with pip")
    fetch(project.path, project.variables, f"{name}/bin/pip", "install", "-q", *packages)
