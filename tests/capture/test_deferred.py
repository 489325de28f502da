"""A large file that is left to whoever is free, and cannot be looked at then, is listed and not taken for gone."""

from __future__ import annotations

import errno
import os

import pytest

from git_envhist.model import WhyMissing
from tests.capture.taking import take
from tests.support.repository import Repo


def test_a_large_file_that_fails_when_its_turn_comes_is_listed(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("config", "envhist.workers", "2")
    repo.write("large", bytes(2 << 20))
    looks = []
    lstat = os.lstat

    def failing(name: bytes) -> os.stat_result:
        if name == b"large":
            looks.append(name)
            if len(looks) > 1:
                raise OSError(errno.EIO, "broken")
        return lstat(name)

    monkeypatch.setattr(os, "lstat", failing)
    taken = take(repo, "here")

    assert len(looks) > 1
    assert [(one.path, one.why) for one in taken.missing] == [(b"large", WhyMissing.IO_ERROR)]
