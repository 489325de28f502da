"""Decide how many cases a costly search tries: a sample by default, all under `--full`."""

from __future__ import annotations

import os

SETTING = "ENVHIST_TEST_FULL"
"""Set by `tests/conftest.py` under `--full`, before the first test module is imported."""

SAMPLE = "ENVHIST_TEST_SAMPLE"
"""Set by a caller that wants the tests of `--full` with a sample only: `.ci/run`, for its second user."""

FULL = SETTING in os.environ and SAMPLE not in os.environ


def examples(default: int, full: int) -> int:
    """Return the number of examples that hypothesis tries in this run."""
    return full if FULL else default


def sample(count: int, default: int) -> list[int]:
    """Return the numbers below `count` that this run tries: all, or `default` of them including the first and the
    last."""
    if FULL or count <= default:
        return list(range(count))
    return sorted({round(number * (count - 1) / (default - 1)) for number in range(default)})
