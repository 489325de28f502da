"""A program of others may have threads, and may fork: nothing is lost, mixed up, or locked for ever."""

from __future__ import annotations

import sys

import pytest

from tests.rules.source import CHECKOUT
from tests.support.repository import Repo


@pytest.mark.parametrize("host", ["threads", "forks", "copies", "restores"])
def test_a_host_program_has_threads_and_forks(repo: Repo, host: str) -> None:
    words = (sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning")
    repo.execute(*words, "-m", "tests.library.hosts", host, env={"PYTHONPATH": str(CHECKOUT)})
    assert repo.git("fsck", "--strict", "--no-dangling") == ""
