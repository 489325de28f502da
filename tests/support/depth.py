"""Decide how much of a costly search a test runs: a sample by default, all of it under `--full`."""

from __future__ import annotations

import os

SETTING = "ENVHIST_TEST_FULL"
"""Set by `tests/conftest.py` under `--full`, before the first test module is imported."""

FULL = SETTING in os.environ


def examples(default: int, full: int) -> int:
    """Return the number of examples that hypothesis tries in this run."""
    return full if FULL else default


def stride(default: int, full: int = 1) -> int:
    """Return the distance between two steps of which each is tried in this run."""
    return full if FULL else default
