"""Rows of the list of the terminal browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from git_envhist.tui.own_programs import FIELDS, _short_time, other_timelines, read_rows, why_subjects
from git_envhist.tui.styled_text import why_text


def test_verdict_of_an_equal_snapshot_is_shown_in_the_summary_only() -> None:
    fields = ("1" * 40, "1111111", "10:20", "verify passing", "restore of 0123abc", "", "~1 file", "restore")
    [own, carried] = read_rows(
        "".join("\0".join((*fields, last, "")) + "\0" for last in ("", "✓ as at 10:02"))
    )
    assert len(FIELDS) == len(fields) + 1
    assert (own.verdict, own.story) == ("verify passing", "~1 file")
    assert (carried.verdict, carried.story) == ("", "✓ as at 10:02 · ~1 file")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [("2026-11-12 09:15", "12 Nov 09:15"), ("09:15", "09:15"), ("2025-01-02 23:59", "2025-01-02 23:59")],
)
def test_days_of_this_year_have_the_name_of_the_month(printed: str, shown: str) -> None:
    assert _short_time(printed, "2026") == shown


def test_subjects_of_a_snapshot_are_asked_about_by_name_or_by_path() -> None:
    facts = [
        {"probe": "pip", "key": ".venv/flask", "before": None, "after": "1", "role": "direct"},
        {"probe": "env", "key": ".env/A", "before": "x", "after": "y", "role": "direct"},
        {"probe": "node", "key": "node", "before": "1", "after": "2", "role": "direct"},
    ]
    paths = [
        {"status": "M", "path": "-a b"},
        {"status": "D", "path": "gone"},
        {"status": "A", "path": "caf\\xe9", "path_b64": "Y2Fm6Q=="},
        {"status": "M", "path": "lib://x"},
    ]
    found = why_subjects({"story": facts, "env_changed": {"paths": paths}})
    assert [one.words for one in found] == [
        ("--package=flask",),
        ("--var=A",),
        ("--", ":/-a b"),
        ("--path-gone=:/gone",),
        ("--", ":/caf\udce9"),
        ("--", "lib://x"),
    ]


def test_hostile_answer_is_escaped() -> None:
    odd = "\x1b[2J\u202e"
    call = dict.fromkeys(("tool", "command", "agent", "subagent", "subagent_type", "call_id", "intent"), odd)
    call |= {"paths": [odd], "failed": True}
    step = {
        "snapshot": "1" * 40, "at": "2026-11-18T10:00:00+00:00", "title": odd, "change": odd, "certainty": "uncertain",
        "reason": odd, "call": None, "candidates": [call] * 9,
    }  # fmt: skip
    text = why_text({"steps": [step, {**step, "call": call, "candidates": []}]}, 60).plain
    assert "or:        one of 5 more" in text
    assert "failed" in text
    assert all(letter == "\n" or letter.isprintable() for letter in text)


def test_timelines_outside_a_repository_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = other_timelines()
    assert found.names == []
    assert "not a git repository" in found.error_text, found
