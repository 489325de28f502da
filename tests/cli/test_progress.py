"""Progress appears after half a second, and disappears at the end."""

from __future__ import annotations

import json

import pytest

from git_envhist.cli.progress import ProgressBar, ProgressLines, shown_progress, shown_steps
from git_envhist.model import CaptureProgress


def test_a_quick_capture_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.1, 0.4])
    display = ProgressBar(0.0, lambda: next(clock))
    display.update(CaptureProgress(1, 10, 100, 1000))
    display.update(CaptureProgress(2, 20, 100, 1000))
    display.close()
    assert capsys.readouterr() == ("", "")


def test_long_capture_shows_progress_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    display = ProgressBar(0.0, lambda: 0.6)
    display.update(CaptureProgress(1234, 3 << 20, 5000, 9 << 20))
    display.close()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "1,234 files" in printed.err
    assert "3.0 MiB" in printed.err


def test_no_progress_is_shown_in_a_pipe() -> None:
    with shown_progress() as progress:
        assert progress is None


def test_progress_as_json_is_a_line_per_half_second(capfd: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 0.4, 0.6, 0.9, 1.2])
    lines = ProgressLines("capturing", lambda: next(clock))
    for files in range(4):
        lines.update(CaptureProgress(files, files * 10, 100, 1000))
    output = [json.loads(line)["progress"] for line in capfd.readouterr().err.splitlines()]
    assert [one["files"] for one in output] == [1, 3]
    assert output[0] == {"step": "capturing", "files": 1, "bytes": 10, "total_bytes": 1000}


def test_steps_are_lines_of_json_if_the_environment_asks(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_ENVHIST_PROGRESS", "json")
    with shown_steps() as report, shown_progress() as progress:
        report("checking")
        assert progress is not None
    assert capfd.readouterr().err == '{"progress": {"step": "checking"}}\n'
