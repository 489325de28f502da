"""The real programs, installed where git finds them, and a quick way to run one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.program_server import ProgramServer, conditions

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = ("envlog", "envdiff", "envrestore", "envhist")

# Like a console script of pip, and as small: it imports nothing else. In a shell that keeps Python from writing
# bytecode, each of thousands of programs would compile its modules again.
SCRIPT = """\
#!{python}
import sys
sys.dont_write_bytecode = False
sys.path.insert(0, {checkout!r})
sys.argv[0] = {name!r}
from git_envhist.cli.main import {program}
sys.exit({program}())
"""


def make_programs(directory: Path) -> Path:
    """Write the four programs into a directory, so that they run the checkout without an installation."""
    for program in PROGRAMS:
        path = directory / f"git-{program}"
        path.write_text(
            SCRIPT.format(
                python=sys.executable, checkout=str(CHECKOUT), name=f"git-{program}", program=program
            )
        )
        os.chmod(path, 0o755)
    return directory


class QuickPrograms:
    """Run the scripts of a directory by a program server if this makes no difference to the program."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = str(directory)
        self._environment = dict(environment)
        self._server: ProgramServer | None = None

    def run(
        self,
        words: Sequence[str | bytes],
        cwd: str | os.PathLike[str],
        environment: Mapping[str, str],
        input: bytes,
    ) -> tuple[int, bytes, bytes] | None:
        """Return status, output and error output; None if the command needs a new process."""
        name = os.fsdecode(words[0])
        if not name.startswith("git-env") or not hasattr(os, "pidfd_open") or not os.path.isdir(cwd):
            return None
        if shutil.which(name, path=environment.get("PATH", "")) != os.path.join(self._directory, name):
            return None
        if conditions(environment) != conditions(self._environment):
            return None
        if self._server is None:
            self._server = ProgramServer(self._environment)
        # Imported late, because conftest.py sets it after it has loaded this module.
        from tests.support.depth import FULL

        # Forked workers double the cost of a capture of a few files; they run under --full, and in their own tests.
        workers = {} if FULL else {"GIT_ENVHIST_WORKERS": "here"}
        return self._server.run(words, cwd, {**workers, **environment}, input)

    def close(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.close()


quick: list[QuickPrograms] = []
"""The runner of this session, or none."""
