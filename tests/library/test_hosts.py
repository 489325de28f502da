"""A host program may use threads and forks: nothing is lost, mixed up, or locked for ever."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from tests.rules.source import CHECKOUT
from tests.support.repository import Repo


@pytest.mark.parametrize("host", ["threads", "forks", "copies", "restores"])
def test_host_program_may_use_threads_and_forks(repo: Repo, host: str) -> None:
    words = (sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning")
    repo.execute(*words, "-m", "tests.library.hosts", host, env={"PYTHONPATH": str(CHECKOUT)})
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_history_keeps_its_directory_when_the_host_program_changes_its_own(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write("sub/file", b"1")
    monkeypatch.chdir(repo.path / "sub")
    history = EnvHistory.open(".")
    monkeypatch.chdir(tmp_path)
    assert history.environment_path(b"file") == b"sub/file"
