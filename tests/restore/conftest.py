"""Tests here do not wait for the disk: a kill loses nothing that was written, synced or not."""

from __future__ import annotations

import os

import pytest

from git_envhist.restore.disk_calls import DiskCalls


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(DiskCalls, "sync", lambda self, descriptor: None)
