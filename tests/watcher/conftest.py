"""Tests in other processes may work in mount namespaces of their own on the same file system."""

from __future__ import annotations

import pytest

from git_envhist.watcher.open_files import OpenFiles
from git_envhist.watcher.start import why_unavailable


@pytest.fixture(autouse=True)
def a_watcher_can_run() -> None:
    if why := why_unavailable():
        pytest.skip(why)


@pytest.fixture(autouse=True)
def no_other_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the files of processes in other mount namespaces, also in watchers that a test forks."""
    monkeypatch.setattr(OpenFiles, "_require_same_file", lambda *_: None)
