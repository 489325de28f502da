"""git-envhist and its peers: how each makes an empty repository, and how each captures the environment into it."""

from __future__ import annotations

import compileall
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.benchmarks.runs import Job, text

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Setting:
    """The paths of a run: the environment, its original git directory, and the variables of the tools."""

    top: Path
    git_dir: Path
    variables: Mapping[str, str]

    def job(self, *words: str | Path, **more: str) -> Job:
        """Return a job that runs a program in the environment's top directory."""
        return Job([str(word) for word in words], self.top, {**self.variables, **more})


class Tool(Protocol):
    """A program that captures an environment."""

    name: str
    keeps: bool
    """Whether a second capture builds on the first."""

    def prepare(self, setting: Setting, store: Path) -> None:
        """Make an empty repository in the store."""

    def capture(self, setting: Setting, store: Path) -> list[Job]:
        """Return the programs that take one capture."""


class Ours:
    """`git envlog capture`."""

    name = "git-envhist"
    keeps = True

    def prepare(self, setting: Setting, store: Path) -> None:
        shutil.copytree(setting.git_dir, store / "git", dirs_exist_ok=True)
        self.use(setting, store)
        # Do what any `git status` of the user does; without it, every capture would read every tracked file.
        text(setting.job("git", "update-index", "-q", "--refresh"))

    def use(self, setting: Setting, store: Path) -> None:
        """Point the working tree to the repository in this store."""
        (setting.top / ".git").write_text(f"gitdir: {store / 'git'}\n")

    def capture(self, setting: Setting, store: Path) -> list[Job]:
        return [setting.job("git-envlog", "capture", "-m", "a moment")]


class Git:
    """git itself: everything is added by force to a private index and repository."""

    name = "git add -A -f, write-tree"
    keeps = True

    def prepare(self, setting: Setting, store: Path) -> None:
        subprocess.run(
            ["git", "init", "-q", "--bare", store / "git"], check=True, env=dict(setting.variables)
        )
        subprocess.run(
            ["git", "-C", store / "git", "config", "core.bare", "false"],
            check=True,
            env=dict(setting.variables),
        )

    def capture(self, setting: Setting, store: Path) -> list[Job]:
        return [self.job(setting, store, "add", "-A", "-f", "."), self.job(setting, store, "write-tree")]

    def job(self, setting: Setting, store: Path, *words: str) -> Job:
        """Return a job that runs a git command on the private index."""
        return self.program(setting, store, "git", *words)

    def program(self, setting: Setting, store: Path, *words: str) -> Job:
        """Return a job for a program; git commands in it use the private index."""
        return setting.job(
            *words,
            GIT_DIR=str(store / "git"),
            GIT_WORK_TREE=str(setting.top),
            GIT_INDEX_FILE=str(store / "index"),
        )


class Restic:
    """restic, with its usual encryption and compression."""

    name = "restic"
    keeps = True

    def prepare(self, setting: Setting, store: Path) -> None:
        text(setting.job("restic", "-q", "-r", store / "restic", "init"))

    def capture(self, setting: Setting, store: Path) -> list[Job]:
        return [setting.job("restic", "-q", "-r", store / "restic", "backup", "--exclude", ".git", ".")]


class Borg:
    """borg without encryption and with lz4, its fastest settings."""

    name = "borg lz4"
    keeps = True

    def __init__(self) -> None:
        self._number = 0

    def prepare(self, setting: Setting, store: Path) -> None:
        text(setting.job("borg", "init", "-e", "none", store / "borg"))

    def capture(self, setting: Setting, store: Path) -> list[Job]:
        self._number += 1
        place = f"{store / 'borg'}::moment{self._number}"
        return [setting.job("borg", "create", "-C", "lz4", "--exclude", ".git", place, ".")]


class Tar:
    """A compressed archive: no history, no deduplication, every file read every time."""

    name = "tar | zstd -T0 -3"
    keeps = False

    def prepare(self, setting: Setting, store: Path) -> None:
        """Do nothing: an archive needs no repository."""

    def capture(self, setting: Setting, store: Path) -> list[Job]:
        archive = shlex.quote(str(store / "archive"))
        return [setting.job("sh", "-c", f"tar cf - --exclude=./.git . | zstd -q -T0 -3 -o {archive}")]


PROGRAMS = {
    "restic": "restic",
    "borg lz4": "borg",
    "tar | zstd -T0 -3": "zstd",
    "git add -A -f, write-tree": "git",
}


def is_installed(name: str) -> bool:
    """Return whether the peer's program is installed."""
    return shutil.which(PROGRAMS.get(name, name)) is not None


def surroundings(base: Path) -> dict[str, str]:
    """Return the variables for every program: a new home, and no configuration of this machine."""
    home = base / "home"
    home.mkdir(exist_ok=True)
    (home / "gitconfig").write_text(
        "[user]\n\tname = A Developer\n\temail = dev@example.com\n[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n"
        "[maintenance]\n\tauto = false\n[safe]\n\tdirectory = *\n"
    )
    programs = base / "programs"
    _write_programs(programs)
    return {
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(home / "gitconfig"),
        "RESTIC_PASSWORD": "benchmark",
        "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
        "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
    }


def _write_programs(place: Path) -> None:
    """Write the console programs like an installer, from a copy, because the checkout may change during the run."""
    package = place / "lib" / "git_envhist"
    shutil.copytree(CHECKOUT / "git_envhist", package, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(package, quiet=1)
    for name in ("envlog", "envdiff", "envrestore"):
        program = place / f"git-{name}"
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path[0] = {str(package.parent)!r}\n"
            f"from git_envhist.cli.main import {name}\nif __name__ == '__main__':\n    sys.exit({name}())\n"
        )
        program.chmod(0o755)
