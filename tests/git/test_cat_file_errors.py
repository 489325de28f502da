"""Failures of the pipe to git: a request that fails is abandoned, not waited for."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator

import pytest

from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from tests.support.repository import Repo

SECONDS = 20


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Kill a test that waits for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_failed_write_of_a_name_ends_git(repo: Repo) -> None:
    with CatFile(Git(str(repo.path / ".git"), str(repo.path))) as reader:
        assert reader.read("HEAD") is not None
        child = reader._child
        assert child is not None
        assert child._input is not None
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, child._input.fileno(), inheritable=False)
        os.close(full)
        with pytest.raises(OSError) as met:
            list(reader.read_many(["HEAD", "HEAD^{tree}"]))
        assert met.value.errno == errno.ENOSPC
        # The next name is sent to another git.
        assert reader.read("HEAD") is not None


def test_interrupt_within_an_answer_ends_git(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    with CatFile(Git(str(repo.path / ".git"), str(repo.path))) as reader:
        answers = reader.read_many(["HEAD", "HEAD^{tree}"])
        with monkeypatch.context() as patch:
            patch.setattr(reader, "_read_exactly", _stopped)
            with pytest.raises(KeyboardInterrupt):
                next(answers)
        assert reader.read("HEAD") is not None


def _stopped(size: int) -> bytes:
    raise KeyboardInterrupt
