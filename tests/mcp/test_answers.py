"""Answers of tools stay small, and pages together are the whole list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from git_envhist.mcp.answers import (
    LIMIT,
    PAGE,
    diff_answer,
    list_answer,
    plan_answer,
    result_answer,
    snapshot_answer,
)

PATHS = [f"node_modules/package-{number % 300}/lib/file-{number}.js" for number in range(20_000)]
FACTS = [
    {"probe": "npm", "key": f"node_modules/p{number}", "before": None, "after": "1"} for number in range(900)
]


def diff() -> dict[str, Any]:
    files = [{"status": "A", "path": path, "before": None, "after": {"oid": "0" * 40}} for path in PATHS]
    return {
        "schema": 1,
        "before": "a" * 40,
        "after": "now",
        "added": len(PATHS),
        "files": files,
        "facts": FACTS,
    }


def plan() -> dict[str, Any]:
    steps = [
        {"action": "remove", "path": path, "before": "file", "after": None, "holds": 0} for path in PATHS
    ]
    left = [{"path": path, "why": "new"} for path in PATHS]
    inner = {"counts": {"write": 0, "remove": len(PATHS)}, "steps": steps, "left_alone": left}
    return {"schema": 1, "plan": inner, "plan_id": "abc", "story": FACTS, "warnings": ["w" * 5000] * 200}


def snapshot() -> dict[str, Any]:
    changed = {"added": len(PATHS), "paths": [{"status": "A", "path": path} for path in PATHS]}
    return {"id": "a" * 40, "intent": "x" * 100_000, "env_changed": changed, "story": FACTS, "missing": PATHS}


def size(answer: object) -> int:
    return len(json.dumps(answer, ensure_ascii=False))


@pytest.mark.parametrize(
    ("answer", "name"),
    [(diff_answer, "files"), (plan_answer, "steps"), (snapshot_answer, "paths")],
)
def test_first_page_is_bounded_and_pages_are_the_whole_list(answer: Any, name: str) -> None:
    value = {"files": diff, "steps": plan, "paths": snapshot}[name]()
    first = answer(value, 0)
    assert size(first) <= LIMIT
    assert first[f"{name}_total"] == len(PATHS)
    found, page = list(first[name]), first
    while page["next_cursor"] is not None:
        page = answer(value, int(page["next_cursor"]))
        assert size(page) <= PAGE + 500
        found += page[name]
    assert [row.split(" ", 1)[1] for row in found] == PATHS


def test_plan_has_its_id_and_counts_before_the_steps() -> None:
    answer = plan_answer(plan(), 0)
    assert list(answer)[:3] == ["plan_id", "counts", "skipped"]
    assert answer["skipped"] == {"new": len(PATHS)}
    assert plan_answer(plan(), 200)["plan_id"] == "abc"


def test_small_comparison_has_no_second_page() -> None:
    value = {**diff(), "files": [{"status": "M", "path": "app.py"}], "facts": []}
    answer = diff_answer(value, 0)
    assert (answer["files"], answer["next_cursor"], answer["directories"]) == (["M app.py"], None, [])


def test_list_of_twenty_snapshots_is_short() -> None:
    value = {
        **snapshot(),
        "title": "add a page",
        "summary": "npm: +next 15",
        "verdicts": [{"status": "pass"}],
    }
    answer = list_answer([value] * 20)
    assert size(answer) < 6_000
    assert answer[0]["check"] == "pass"


def test_long_lists_of_a_result_are_cut_and_counted() -> None:
    answer = result_answer({"id": "a", "losses": [{"path": path} for path in PATHS]})
    assert answer["losses_total"] == len(PATHS)
    assert size(answer) <= LIMIT
