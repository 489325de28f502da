"""Errors of the system at a few calls of a few commands; `python -m tests.crash.errors` tries them all."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.crash.errors import COMMANDS, Template, prepare, run, sample, try_point
from tests.crash.faults import needs_strace

pytestmark = needs_strace


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    before = dict(os.environ)
    try:
        return prepare(tmp_path_factory.mktemp("errors"))
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_restore_names_the_file_when_the_name_of_the_timeline_cannot_be_read(template: Template) -> None:
    repo = template.copy()
    place = repo.path / ".git" / "envhist" / "timeline"
    trace = ("strace", "-f", "-qq", "-o", "/dev/null", "-P", str(place), "-e", "trace=read",
             "-e", "inject=read:error=EIO")  # fmt: skip
    for words in (("envrestore", "@~1"), ("envlog", "capture"), ("envlog",), ("envlog", "drop", "@~1")):
        done = run(repo, trace, words)
        assert done is not None
        assert done.status == 128, (words, done.err)
        error, *hints = done.err.splitlines()
        assert error.startswith("error: the system refused"), (words, done.err)
        assert "input/output error" in error
        assert len(hints) == 1
        assert "unexpected failure" not in done.err


def test_commands_report_a_random_error_in_one_line_and_lose_nothing(template: Template) -> None:
    seed = time.time_ns()
    deadline = time.monotonic() + 12
    for point in sample(template, list(COMMANDS), random.Random(seed)):
        assert try_point(template, point) == [], (seed, point)
        if time.monotonic() > deadline:
            break


@pytest.mark.full
@pytest.mark.parametrize("command", ["capture", "restore", "undo", "gc", "drop", "purge", "fork", "hook"])
def test_command_reports_many_errors_in_one_line_and_loses_nothing(template: Template, command: str) -> None:
    seed = time.time_ns()
    deadline = time.monotonic() + 60
    for point in sample(template, [command], random.Random(seed)):
        assert try_point(template, point) == [], (seed, point)
        if time.monotonic() > deadline:
            break
