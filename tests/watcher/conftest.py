"""Tests in other processes may write to files of the same file system that have no name here."""

from __future__ import annotations

import pytest

from git_envhist.watcher.open_files import OpenFiles
from git_envhist.watcher.start import why_unavailable


@pytest.fixture(autouse=True)
def a_watcher_can_run() -> None:
    if why := why_unavailable():
        pytest.skip(why)


@pytest.fixture(autouse=True)
def no_hidden_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore such files, also in watchers that a test forks."""
    monkeypatch.setattr(OpenFiles, "_note_hidden", lambda *_: None)
