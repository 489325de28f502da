"""A real git repository for a test, and the programs run in it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import programs

DECISIVE = ("GIT_DEFAULT_", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_TEMPLATE_DIR")
"""Variables (by prefix) that change the repository that git makes."""
FIRST_COMMIT_AT = "2026-01-02T03:04:05+00:00"


@dataclass(frozen=True)
class Result:
    """The result of a program."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        return self.stdout.decode("utf-8", "surrogateescape")

    @property
    def err(self) -> str:
        return self.stderr.decode("utf-8", "surrogateescape")


class ProgramFailed(AssertionError):
    """A program that the test needs to succeed has failed."""

    def __init__(self, words: tuple[str | bytes, ...], result: Result) -> None:
        super().__init__(f"{words!r} ended with {result.status}\n{result.out}\n{result.err}")
        self.result = result


@dataclass
class Repo:
    """A working tree; `env` is the environment of everything that is run in it, and may be changed."""

    path: Path
    env: dict[str, str]

    def git(self, *args: str | bytes, input: bytes | str | None = None, check: bool = True) -> str:
        """Run plain git and return its output without the last newline."""
        return self.run_git(*args, input=input, check=check).out.removesuffix("\n")

    def run_git(self, *args: str | bytes, input: bytes | str | None = None, check: bool = True) -> Result:
        return self.execute("git", *args, input=input, check=check)

    def write(self, path: str | bytes, content: bytes | str = b"", mode: int | None = None) -> Path:
        """Write a file below the top, and make missing directories."""
        place = self.path / os.fsdecode(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            place.chmod(mode)
        return place

    def read(self, path: str | bytes) -> bytes:
        return (self.path / os.fsdecode(path)).read_bytes()

    def commit(self, message: str = "a change") -> str:
        """Commit everything that is not ignored; returns the new commit's hash."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def run(
        self,
        program: str,
        *args: str | bytes,
        input: bytes | str | None = None,
        check: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> Result:
        """Run one of git-envhist's programs (`envlog` or `git-envlog`); `prefix` precedes it (strace, setpriv)."""
        name = program if program.startswith("git-") else f"git-{program}"
        return self.execute(*prefix, name, *args, input=input, check=check, cwd=cwd, env=env)

    def execute(
        self,
        *words: str | bytes,
        input: bytes | str | None = None,
        check: bool = True,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run any command in the working tree."""
        result = execute(
            words,
            self.path if cwd is None else self.path / cwd,
            {**self.env, **(env or {})},
            input.encode() if isinstance(input, str) else (input or b""),
        )
        if check and result.status != 0:
            raise ProgramFailed(words, result)
        return result


def execute(
    words: Sequence[str | bytes], cwd: str | os.PathLike[str], env: Mapping[str, str], input: bytes = b""
) -> Result:
    """Run a command to its end; use the session's program server for git-envhist's programs if this makes no
    difference."""
    for runner in programs.quick:
        if found := runner.run(words, cwd, env, input):
            return Result(*found)
    done = subprocess.run(words, cwd=cwd, env=dict(env), input=input, capture_output=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def make_repo(path: Path, *, object_format: str = "sha1", commit: bool = True, bare: bool = False) -> Repo:
    """Make a repository, by default with one commit that holds `app.py`."""
    path.mkdir(parents=True, exist_ok=True)
    repo = Repo(path, dict(os.environ))
    if commit and not bare and not os.listdir(path):
        shutil.copytree(_template(repo.env, object_format), path, symlinks=True, dirs_exist_ok=True)
        # The index has the inode and the times of the template's file.
        repo.git("update-index", "-q", "--refresh")
        return repo
    _init(repo, object_format, bare=bare)
    if commit and not bare:
        _commit_first(repo)
    return repo


def _init(repo: Repo, object_format: str, *, bare: bool) -> None:
    # No templates: a test must not depend on the sample hooks of a machine.
    words = ["init", "-q", "--template=", f"--object-format={object_format}", *(["--bare"] if bare else [])]
    repo.git(*words)


def _commit_first(repo: Repo) -> None:
    repo.write("app.py", b"print('hello')\n")
    repo.git("add", "app.py")
    dates = {"GIT_AUTHOR_DATE": FIRST_COMMIT_AT, "GIT_COMMITTER_DATE": FIRST_COMMIT_AT}
    repo.execute("git", "commit", "-q", "-m", "first commit", env=dates)


def _template(env: Mapping[str, str], object_format: str) -> Path:
    """Return a repository with the first commit, made once for each git and configuration."""
    configuration = Path(env.get("GIT_CONFIG_GLOBAL", os.devnull)).read_bytes()
    settings = frozenset((name, value) for name, value in env.items() if name.startswith(DECISIVE))
    return _make_template(object_format, env.get("PATH", ""), configuration, settings)


@functools.cache
def _make_template(object_format: str, *_key: object) -> Path:
    path = new_template()
    repo = Repo(path, dict(os.environ))
    _init(repo, object_format, bare=False)
    _commit_first(repo)
    return path


def new_template() -> Path:
    """Make an empty directory for what tests copy; it is removed when the process ends."""
    if not templates:
        templates.append(tempfile.TemporaryDirectory(prefix="envhist-templates-"))
    path = Path(tempfile.mkdtemp(dir=templates[0].name))
    # Copies get the mode of this directory, and other users must be able to enter some copies.
    path.chmod(0o755)
    return path


def replace_tree(source: Path, place: Path) -> None:
    """Replace a directory by a copy of another."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place, symlinks=True)


templates: list[tempfile.TemporaryDirectory[str]] = []
"""The directory of the templates, if one was made; it is removed when the process ends."""
