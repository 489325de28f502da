"""Disable syncs in these tests: data written by a killed process is not lost, only a power failure loses it."""

from __future__ import annotations

import os

import pytest

from git_envhist.restore.disk_calls import DiskCalls


@pytest.fixture(autouse=True)
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(DiskCalls, "sync", lambda self, descriptor: None)
