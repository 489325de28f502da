"""Fixtures of the tests of the library."""

from __future__ import annotations

import pytest


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture in the test process: new interpreters, as a host program needs them, take most of a test's time."""
    monkeypatch.setenv("GIT_ENVHIST_WORKERS", "here")
