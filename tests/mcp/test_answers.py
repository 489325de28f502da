"""Answers of tools stay small, and pages together are the whole list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from git_envhist.mcp.answers import (
    LIMIT,
    MAX_ITEMS,
    PAGE,
    capture_answer,
    diff_answer,
    file_answer,
    list_answer,
    plan_answer,
    restore_answer,
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


def plan_page(value: dict[str, Any], cursor: str | None = None) -> dict[str, Any]:
    return plan_answer(value, "the title", cursor)


def size(answer: object) -> int:
    return len(json.dumps(answer, ensure_ascii=False))


@pytest.mark.parametrize(
    ("answer", "name"),
    [(diff_answer, "files"), (plan_page, "steps"), (snapshot_answer, "paths")],
)
def test_first_page_is_bounded_and_pages_are_the_whole_list(answer: Any, name: str) -> None:
    value = {"files": diff, "steps": plan, "paths": snapshot}[name]()
    first = answer(value)
    assert size(first) <= LIMIT
    assert first[f"{name}_total"] == len(PATHS)
    found, page = list(first[name]), first
    while page["next_cursor"] is not None:
        page = answer(value, page["next_cursor"])
        assert size(page) <= PAGE + 500
        found += page[name]
    assert [row.split(" ", 1)[1] for row in found] == PATHS
    # The facts have pages of their own.
    facts, page = list(first["facts"]), first
    while "next_facts_cursor" in page:
        page = answer(value, page["next_facts_cursor"])
        assert page[name] == []
        assert size(page) <= PAGE + 500
        facts += page["facts"]
    assert [one["key"] for one in facts] == [one["key"] for one in FACTS]


def test_plan_has_its_id_and_counts_before_the_steps() -> None:
    answer = plan_page(plan())
    assert list(answer)[:4] == ["plan_id", "counts", "skipped", "title"]
    assert answer["skipped"] == {"new": len(PATHS)}
    assert plan_page(plan(), "200")["plan_id"] == "abc"
    assert plan_page(plan(), "f30")["plan_id"] == "abc"


def test_small_comparison_has_no_second_page() -> None:
    value = {**diff(), "files": [{"status": "M", "path": "app.py"}], "facts": []}
    answer = diff_answer(value)
    assert (answer["files"], answer["next_cursor"], answer["directories"]) == (["M app.py"], None, [])
    assert "next_facts_cursor" not in answer


@pytest.mark.parametrize("answer", [diff_answer, plan_page])
def test_first_page_of_an_ordinary_upgrade_has_at_most_2000_tokens(answer: Any) -> None:
    paths = [f"node_modules/package-{number % 90}/lib/file-{number}.js" for number in range(3_000)]
    facts = [
        {"probe": "npm", "key": f"node_modules/package-{n}", "before": "1.2.3", "after": "2.0.0", "role": "x"}
        for n in range(90)
    ]
    value: dict[str, Any] = {"target": "a" * 40, "plan_id": "abc", "story": facts}
    value["plan"] = {"counts": {"replace": 3_000}, "steps": [{"action": "replace", "path": p} for p in paths]}
    if answer is diff_answer:
        files = [{"status": "M", "path": path} for path in paths]
        value = {"before": "a" * 40, "after": "now", "files": files, "facts": facts}
    # Such text has about 3.5 characters per token.
    assert size(answer(value)) < 7_000


def test_list_of_snapshots_is_short() -> None:
    value = {
        **snapshot(),
        "title": "add a page",
        "summary": "npm: +next 15",
        "verdicts": [{"status": "pass"}],
    }
    answer = list_answer([value] * 20)
    assert size(answer) < 6_000
    assert answer["snapshots"][0]["check"] == "pass"
    wordy = {**value, "title": "t" * 10_000, "summary": "s" * 10_000}
    assert size(list_answer([wordy] * 50)) <= LIMIT


def test_long_lists_of_a_result_are_cut_and_counted() -> None:
    answer = result_answer({"id": "a", "losses": [{"path": path} for path in PATHS]})
    assert (answer["losses_total"], len(answer["losses"])) == (len(PATHS), MAX_ITEMS)
    assert size(answer) <= LIMIT


def test_results_of_a_capture_and_a_restore_name_no_paths() -> None:
    captured = capture_answer({"schema": 1, "id": "a" * 40, "snapshot": snapshot(), "files": 20_000})
    assert (captured["id"], captured["files"]) == ("a" * 40, 20_000)
    assert "node_modules" not in json.dumps(captured)
    restored = restore_answer({**plan(), "changed": True, "undo": "x", "warnings": []})
    assert (restored["changed"], restored["counts"]["remove"]) == (True, len(PATHS))
    assert "node_modules/package-1/" not in json.dumps(restored)


def test_pages_of_a_file_are_its_text() -> None:
    text = "é" * 20_000
    page = file_answer({"schema": 1, "path": "f", "text": text})
    found = page["text"]
    while page["next_cursor"] is not None:
        page = file_answer({"path": "f", "text": text}, page["next_cursor"])
        found += page["text"]
    assert found == text
    assert file_answer({"path": "f", "text": None, "omitted": "binary"})["next_cursor"] is None
