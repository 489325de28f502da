"""Tests in other processes may work in mount namespaces of their own on the same file system."""

from __future__ import annotations

import pytest

from git_envhist.watcher.open_files import OpenFiles


@pytest.fixture(autouse=True)
def no_other_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the files of processes in other mount namespaces, also in watchers that a test forks."""
    monkeypatch.setattr(OpenFiles, "_require_same_file", lambda *_: None)
