"""Lines printed after the tests: programs that were missing, and where the time was spent."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import PACKAGES, PREFIX

DIRECTORIES_SHOWN = 25
SLOW_SECONDS = 0.5
SKIPPED = "ENVHIST_TEST_SKIPPED"
"""Names a file for the tests that are skipped: `.ci/run` runs them again as another user."""
SKIPPED_BEFORE = "ENVHIST_TEST_SKIPPED_BEFORE"
"""Names the file that an earlier run has written."""


def write_slow_tests(reporter: Any, path: Path) -> None:
    """Write the names of the functions with a case that took more than half a second, one per line."""
    seconds: Counter[str] = Counter()
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] += report.duration
    slow = {test.partition("[")[0] for test, taken in seconds.items() if taken > SLOW_SECONDS}
    path.write_text("".join(f"{name}\n" for name in sorted(slow)), encoding="utf-8")


def write_skipped(reporter: Any) -> None:
    """Write the names of the skipped tests into the file that the caller named, one per line."""
    if place := os.environ.get(SKIPPED):
        names = sorted({report.nodeid for report in reporter.stats.get("skipped", ())})
        Path(place).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def skipped_before() -> frozenset[str]:
    """Return the names of the tests that an earlier run skipped, if the caller names its file."""
    place = os.environ.get(SKIPPED_BEFORE)
    return frozenset(Path(place).read_text(encoding="utf-8").splitlines()) if place else frozenset()


def print_missing_programs(reporter: Any) -> None:
    """Print each missing program with the number of tests that were skipped for it, and how to install them all."""
    missing = Counter(
        program for report in reporter.stats.get("skipped", ()) for program in _missing_programs(report)
    )
    other = sum(not _missing_programs(report) for report in reporter.stats.get("skipped", ()))
    if missing:
        counts = ", ".join(f"{program} ({tests})" for program, tests in sorted(missing.items()))
        reporter.write_line(f"skipped, because a program is missing (number of tests): {counts}")
        packages = sorted({PACKAGES[program] for program in missing if program in PACKAGES})
        if packages:
            reporter.write_line(f"to run them too: apt-get install {' '.join(packages)}")
    if other:
        reporter.write_line(f"skipped for other reasons: {other} (pytest -rs prints them)")


def _missing_programs(report: pytest.TestReport) -> list[str]:
    if not isinstance(report.longrepr, tuple):
        return []
    reason = report.longrepr[2].removeprefix("Skipped: ")
    return reason.removeprefix(PREFIX).split() if reason.startswith(PREFIX) else []


def print_seconds_by_directory(reporter: Any) -> None:
    """Print the directories whose tests took longest."""
    seconds: dict[str, float] = {}
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                directory = "/".join(report.nodeid.partition("::")[0].split("/")[:2])
                seconds[directory] = seconds.get(directory, 0.0) + report.duration
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:DIRECTORIES_SHOWN]
    rows = ", ".join(f"{directory} {taken:.0f}" for directory, taken in slowest)
    reporter.write_line(f"seconds by directory: {rows}")
