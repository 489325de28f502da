"""The verbs that cause captures: a command between two moments, a watch, what git and agents call by themselves."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.lookup import as_sequence
from git_envhist.model import CaptureResult

if TYPE_CHECKING:
    from git_envhist.capturing.request import CaptureKeywords
    from git_envhist.model import RunResult
    from git_envhist.model.causing import IntegrationChange, IntegrationStatus
    from git_envhist.triggers.integration import InstallTarget

PROGRAM = "git-envhist"


class Causing(EnvHistory):
    """What captures, and when."""

    def run(self, words: Sequence[str], intent: str | None = None, *, verify: str | None = None) -> RunResult:
        """Run a command between two snapshots, at the top; what it wrote and how it ended stand with the second.

        >>> ran = history.run(["sh", "-c", "echo built > out; echo done"], "build it")
        >>> ran.status, ran.output, ran.after.snapshot.intent
        (0, b'done\\n', 'build it')
        """
        from git_envhist.triggers.between import (
            run_with_snapshots,  # loaded late: few captures have a command
        )

        if isinstance(words, str | bytes) or not words:
            raise UsageError(
                "a command is given word by word", hint='run(["npm", "test"]), or run(["sh", "-c", "…"])'
            )

        def capture(why: str, asked: CaptureKeywords) -> CaptureResult:
            return self.capture(why, **asked)

        return run_with_snapshots(capture, words, intent, verify, self._run_quietly)

    def _run_quietly(self, words: Sequence[str], keep: Callable[[bytes], None]) -> int:
        import subprocess  # loaded late: likewise

        from git_envhist.triggers.passing import copy_until_exit, status_of  # loaded late: likewise

        try:
            child = subprocess.Popen(
                words,
                cwd=self.repository.root,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except (OSError, ValueError) as error:
            # A word may hold what no word of a command can: a zero byte, half of a letter.
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise EnvhistError(f"cannot run '{words[0]}': {reason}") from error
        with child:
            assert child.stdout is not None
            copy_until_exit(child.pid, [child.stdout.fileno()], lambda _source, data: keep(data))
            return status_of(child.wait())

    def watch(self, *, settle: float = 2.0) -> Iterator[CaptureResult]:
        """Capture whenever the environment has come to rest after a change; each is yielded, until somebody stops."""
        with closing(self.watched(settle)) as looks:
            yield from (one for one in looks if one is not None)

    def watched(self, settle: float, longest: float | None = None) -> Generator[CaptureResult | None]:
        """The same; with `longest` None comes at least every so many seconds."""
        from git_envhist.triggers.watch.watching import captures  # loaded late: only who watches needs it

        cls, environ, workers = type(self), self._environ, self._workers
        root = self.repository.root

        def open_history() -> EnvHistory:
            return cls.open(root, environ=environ, workers=workers)

        return captures(open_history, self._tell, settle, longest)

    def install(
        self,
        agents: Sequence[str] = (),
        *,
        everywhere: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> tuple[IntegrationChange, ...]:
        """Have git, or coding agents, capture by themselves; told is every byte that was, or would be, written."""
        from git_envhist.triggers.installing import chosen, install  # loaded late: hardly ever asked for

        return install(self._place(everywhere, force), chosen(as_sequence(agents)), dry_run=dry_run)

    def uninstall(
        self, agents: Sequence[str] = (), *, everywhere: bool = False, dry_run: bool = False
    ) -> tuple[IntegrationChange, ...]:
        """Take away what `install` put in place; what nobody has changed since is what it was before."""
        from git_envhist.triggers.installing import chosen, every, uninstall  # loaded late: likewise

        wanted = chosen(as_sequence(agents)) if agents else every()
        return uninstall(self._place(everywhere, force=False), wanted, dry_run=dry_run)

    def status(self) -> IntegrationStatus:
        """What captures by itself here, when it last did, and what went wrong."""
        from git_envhist.triggers.status import read_status  # loaded late: likewise

        return read_status(self._place(everywhere=False, force=False, only_looks=True), self.settings)

    def _place(self, everywhere: bool, force: bool, *, only_looks: bool = False) -> InstallTarget:
        from git_envhist.triggers.integration import InstallTarget  # loaded late: likewise

        if self.repository.plain and not (everywhere or only_looks):
            raise EnvhistError(
                f"'{self.repository.root}' is no git repository: no hook of git is called there",
                hint="capture by hand, or by an agent: install(agents=[…], everywhere=True)",
            )
        return InstallTarget(self.repository, self._environ, own_program(self._environ), everywhere, force)


def own_program(environ: dict[str, str]) -> str:
    """`git-envhist` of this very installation, by its absolute path."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), PROGRAM)
    import shutil  # loaded late: likewise

    found = beside if os.access(beside, os.X_OK) else shutil.which(PROGRAM, path=environ.get("PATH"))
    if found is None:
        raise EnvhistError(f"'{PROGRAM}' is neither beside '{sys.executable}' nor on the PATH")
    return os.path.abspath(found)
