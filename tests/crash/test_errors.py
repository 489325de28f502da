"""Failing system calls at a few points of a few commands; `python -m tests.crash.errors` tries all."""

from __future__ import annotations

import os
import random
from itertools import islice

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


POINTS = 16


def test_unreadable_name_of_the_timeline_is_recovered_or_reported(
    template: Template,
) -> None:
    repo = template.copy()
    timelines = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads")
    place = repo.path / ".git" / "envhist" / "timeline"
    trace = ("strace", "-f", "-qq", "-o", "/dev/null", "-P", str(place), "-e", "trace=read",
             "-e", "inject=read:error=EIO")  # fmt: skip
    for words in (("envrestore", "@~1"), ("envlog", "capture"), ("envlog",), ("envlog", "drop", "@~1")):
        done = run(repo, trace, words)
        assert done is not None
        assert repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads") == timelines
        if done.status == 0:
            warning = f"warning: '{place}' is damaged; the name of this timeline was recovered"
            assert done.err == "" or done.err.startswith(warning), (words, done.err)
            assert done.err.count("\n") <= 1
            continue
        assert done.status == 128, (words, done.err)
        error, *hints = done.err.splitlines()
        assert error.startswith("error: the system refused"), (words, done.err)
        assert "input/output error" in error
        assert len(hints) == 1
        assert "unexpected failure" not in done.err


def test_commands_report_an_error_of_any_call_in_one_line_and_lose_nothing(template: Template) -> None:
    # The same points in each run; `python -m tests.crash.errors` tries others.
    for point in islice(sample(template, list(COMMANDS), random.Random(5)), POINTS):
        assert try_point(template, point) == [], point
