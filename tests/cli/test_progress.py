"""Progress appears after half a second, and disappears at the end."""

from __future__ import annotations

import pytest

from git_envhist.cli.progress import ProgressBar, shown_progress
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
    said = capsys.readouterr()
    assert said.out == ""
    assert "1,234 files" in said.err
    assert "3.0 MiB" in said.err


def test_no_progress_is_shown_in_a_pipe() -> None:
    with shown_progress() as progress:
        assert progress is None
