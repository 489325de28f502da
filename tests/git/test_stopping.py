"""A signal stops the program at any line, and no error caused by it replaces it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

from git_envhist.errors import GitFailed
from git_envhist.git.limits import ResourceLimits, run_limited
from git_envhist.git.process import Git, GitProcess, GitStream, run_to_end
from tests.git.loose import git_of
from tests.support.repository import Repo


def talk_with_a_git(git: Git) -> None:
    child = GitStream(git, "cat-file", "--batch-check", talks=True)
    try:
        child.write(b"x\n")
        assert child.read() == b"x missing\n"
        assert child.finish().status == 0
    except BaseException:
        child.stop()
        raise
    finally:
        child.close()


def run_one_that_is_held(git: Git) -> None:
    words = ("git", "cat-file", "--batch-check")
    assert run_limited(words, git.environment, ResourceLimits(), b"x\n").out == b"x missing\n"


def run_one_to_its_end(git: Git) -> None:
    assert git.run("cat-file", "--batch-check", stdin=b"x\n") == b"x missing\n"


def keep_the_output_of_one(git: Git) -> None:
    words = [*git.command, "cat-file", "--batch-check"]
    running = GitProcess(words, git.environment, stdin=b"x\n", keeps_output=True)
    try:
        assert running.finish().out == b"x missing\n"
        assert not running.process
    finally:
        if running.process:
            running.finish()


# If it is stopped before the object is stored, Python closes its pipes.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "work", [talk_with_a_git, run_one_that_is_held, run_one_to_its_end, keep_the_output_of_one]
)
def test_signal_at_any_line_stops_the_program(repo: Repo, work: Callable[[Git], None]) -> None:
    git = git_of(repo)
    ours = {str(Path(sys.modules[one.__module__].__file__ or "")) for one in (GitStream, run_limited)}
    steps = 0
    while True:
        steps += 1
        left = steps

        def stop(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
            nonlocal left
            if frame.f_code.co_filename not in ours:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return stop

        sys.settrace(stop)
        try:
            work(git)
        except KeyboardInterrupt:
            continue
        finally:
            sys.settrace(None)
            reap()
        break
    assert steps > 30


def reap() -> None:
    """Wait for a child that was not registered yet when its parent was stopped; without a reader it ends."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="the test reads /proc")
def test_command_has_the_default_action_for_a_closed_pipe(repo: Repo) -> None:
    words = ("grep", "SigIgn", "/proc/self/status")
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    for done in (
        run_to_end(words, os.environb),
        GitProcess(words, os.environb, keeps_output=True).finish(),
        run_limited(words, os.environb, ResourceLimits()),
    ):
        assert int(done.out.split()[1], 16) & 1 << signal.SIGPIPE - 1 == 0


def test_missing_program_is_named(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repo.path))
    git = git_of(repo)
    with pytest.raises(GitFailed, match="git is not on the PATH"):
        git.run("version")
    with pytest.raises(GitFailed, match="git is not on the PATH"):
        GitStream(git, "version")
    with pytest.raises(GitFailed, match="sh is not on the PATH"):
        run_limited(("git", "version"), git.environment, ResourceLimits())
