"""A pytest plugin that records which functions of the package each test calls, also in the programs it starts.

Used by `python -m tests.mutation`: `-p tests.mutation.calls` with ENVHIST_TEST_CALLS set to a directory. A process
writes its calls to a file of that directory when it ends: the test in the first line, then a function per line.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

VARIABLE = "ENVHIST_TEST_CALLS"
DIRECTORY = os.environ.get(VARIABLE, "")
"""Read once: the tests clear their environment."""
PACKAGE = str(Path(__file__).resolve().parents[2] / "git_envhist")
DURATIONS = "durations"

_called: set[tuple[str, int]] = set()


def running_test() -> tuple[str, str] | None:
    """Return the directory of the recording and the test that runs, if calls are recorded."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return (DIRECTORY, test) if DIRECTORY and test else None


def trace_process(directory: str, test: str) -> None:
    """Record the calls of this process as those of a test, and write them when it ends."""
    leave = os._exit
    _start()

    def write_and_leave(status: int) -> NoReturn:
        sys.settrace(None)
        _write(directory, test)
        leave(status)

    os._exit = write_and_leave


def _start() -> None:
    _called.clear()
    sys.settrace(_trace)
    threading.settrace(_trace)


def _trace(frame: FrameType, event: str, argument: Any) -> None:
    code = frame.f_code
    if code.co_filename.startswith(PACKAGE):
        _called.add((code.co_filename, code.co_firstlineno))


def _write(directory: str, test: str) -> None:
    lines = [test, *(f"{name}:{line}" for name, line in sorted(_called))]
    Path(directory, uuid.uuid4().hex).write_text("\n".join(lines), encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _start()
    try:
        return (yield)
    finally:
        sys.settrace(None)
        _write(DIRECTORY, item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(Path(DIRECTORY, DURATIONS), "a", encoding="utf-8") as file:
            file.write(f"{report.duration:.3f} {report.nodeid}\n")


def read_calls(directory: Path) -> dict[tuple[str, int], set[str]]:
    """Return the tests that call each function, by its file and first line."""
    tests: dict[tuple[str, int], set[str]] = {}
    for path in directory.iterdir():
        if path.name == DURATIONS:
            continue
        test, *functions = path.read_text(encoding="utf-8").split("\n")
        for function in functions:
            name, _, line = function.rpartition(":")
            tests.setdefault((name, int(line)), set()).add(test)
    return tests


def read_durations(directory: Path) -> dict[str, float]:
    """Return the seconds that each test took."""
    lines = Path(directory, DURATIONS).read_text(encoding="utf-8").splitlines()
    return {test: float(seconds) for seconds, _, test in (line.partition(" ") for line in lines)}
