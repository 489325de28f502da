"""A real git repository to test in, and the programs run in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FIRST_COMMIT_AT = "2026-01-02T03:04:05+00:00"


@dataclass(frozen=True)
class Result:
    """What a program left behind."""

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
    """A program that a test relied on did not succeed."""

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
        """Write a file below the top, its directories made where they are missing."""
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
        """Run one of our programs (`envlog` or `git-envlog`) here; `prefix` goes before it (strace, setpriv)."""
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
        done = subprocess.run(
            words,
            cwd=self.path if cwd is None else self.path / cwd,
            env={**self.env, **(env or {})},
            input=input.encode() if isinstance(input, str) else (input or b""),
            capture_output=True,
            check=False,
        )
        result = Result(done.returncode, done.stdout, done.stderr)
        if check and result.status != 0:
            raise ProgramFailed(words, result)
        return result


def make_repo(path: Path, *, object_format: str = "sha1", commit: bool = True, bare: bool = False) -> Repo:
    """Make a repository, by default with one commit that holds `app.py`."""
    path.mkdir(parents=True, exist_ok=True)
    repo = Repo(path, dict(os.environ))
    # No templates: a machine's sample hooks are none of our test.
    words = ["init", "-q", "--template=", f"--object-format={object_format}", *(["--bare"] if bare else [])]
    repo.git(*words)
    if commit and not bare:
        repo.write("app.py", b"print('hello')\n")
        repo.git("add", "app.py")
        dates = {"GIT_AUTHOR_DATE": FIRST_COMMIT_AT, "GIT_COMMITTER_DATE": FIRST_COMMIT_AT}
        repo.execute("git", "commit", "-q", "-m", "first commit", env=dates)
    return repo
