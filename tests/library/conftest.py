"""What the tests of the library share."""

from __future__ import annotations

import pytest


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are forked, which a host program must not do and which takes a quarter of the time."""
    monkeypatch.setenv("GIT_ENVHIST_WORKERS", "fork")
