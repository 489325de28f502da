"""Bound the answers of tools to what a model can read (pure).

Counts and the plan's id come first, then facts and directories, then one page of the long list; the cursor of the next
page comes with it. A page has about 1,500 tokens; no answer has more than about 8,000.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

PAGE = 4_000
"""Characters of one page of a long list; a token has three to four."""
LIMIT = 24_000
"""Characters of a whole answer."""
MAX_ITEMS = 40
"""Items of a list that has no pages."""
MAX_TEXT = 600
MAX_DIRECTORIES = 12
MAX_DEPTH = 2
"""Components by which paths are counted."""


def diff_answer(value: Mapping[str, Any], cursor: int) -> Json:
    """Return the answer to a comparison: counts, facts and directories, or on later pages only files."""
    rows = [_file_row(row) for row in value.get("files", ())]
    head = {name: one for name, one in value.items() if name not in ("schema", "files", "facts")}
    facts = {"facts": value.get("facts", [])}
    return _paged(head, facts, "files", rows, _paths_of(value.get("files", ())), cursor)


def plan_answer(value: Mapping[str, Any], cursor: int) -> Json:
    """Return the answer to a plan: its id, counts and what the person must know, then the steps by page."""
    plan = value.get("plan") or {}
    steps = plan.get("steps", ())
    rows = [f"{row.get('action')} {_path(row)}" for row in steps]
    skipped = Counter(str(row.get("why", row.get("reason", "skipped"))) for row in plan.get("left_alone", ()))
    head = {"plan_id": value.get("plan_id"), "counts": plan.get("counts"), "skipped": dict(skipped)}
    more = {
        name: one
        for name, one in value.items()
        if name not in ("schema", "plan", "plan_id", "story", "dry_run") and one not in (None, [], {}, "")
    }
    return _paged(
        {**head, **more}, {"facts": value.get("story", [])}, "steps", rows, _paths_of(steps), cursor
    )


def snapshot_answer(value: Mapping[str, Any], cursor: int) -> Json:
    """Return one snapshot: its details, then the changed paths by page."""
    changed = value.get("env_changed") or {}
    rows = [_file_row(row) for row in changed.get("paths", ())]
    counts = {name: one for name, one in changed.items() if name != "paths"}
    head = {
        name: one
        for name, one in value.items()
        if name not in ("schema", "env_changed", "story") and one not in (None, [], {}, "")
    }
    facts = {"facts": value.get("story", [])}
    return _paged(
        {**head, "counts": counts}, facts, "paths", rows, _paths_of(changed.get("paths", ())), cursor
    )


def list_answer(values: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return the snapshots of a list, each with what tells it from the others."""
    return [_list_row(value) for value in values]


def result_answer(value: Any) -> Any:
    """Return the result of an operation, long lists cut and counted."""
    return _within_limit(value)


def _list_row(value: Mapping[str, Any]) -> Json:
    actor, verdicts = value.get("actor") or {}, value.get("verdicts") or ()
    row = {
        "id": value.get("id"),
        "at": value.get("at"),
        "title": value.get("title") or value.get("intent"),
        "summary": value.get("summary"),
        "check": verdicts[-1].get("status") if verdicts else None,
        "names": value.get("names"),
        "trigger": value.get("trigger"),
        "agent": actor.get("agent"),
        "session": actor.get("session"),
        "restored_from": value.get("restored_from"),
        "trusted": None if value.get("trusted", True) else False,
    }
    return {name: _cut(one, MAX_ITEMS) for name, one in row.items() if one not in (None, [], "")}


def _paged(
    head: Mapping[str, Any],
    facts: Mapping[str, Any],
    name: str,
    rows: Sequence[str],
    paths: Sequence[str],
    cursor: int,
) -> Json:
    page, following = _page(rows, cursor)
    last = {name: page, f"{name}_total": len(rows), "next_cursor": following}
    if cursor:
        return {"plan_id": head["plan_id"], **last} if "plan_id" in head else last
    answer: Json = _within_limit({**head, **facts, "directories": _directories(paths), **last}, keep=name)
    return answer


def _page(rows: Sequence[str], cursor: int) -> tuple[list[str], str | None]:
    page: list[str] = []
    size, place = 0, cursor
    while place < len(rows) and (not page or size + len(rows[place]) + 4 <= PAGE):
        page.append(rows[place])
        size += len(rows[place]) + 4
        place += 1
    return page, str(place) if place < len(rows) else None


def _directories(paths: Sequence[str]) -> list[str]:
    """Return the directories with most of the paths, as `<directory>/ <count>`."""
    if len(paths) <= MAX_DIRECTORIES:
        return []
    counts = Counter("/".join(path.split("/")[:-1][:MAX_DEPTH]) or "." for path in paths)
    rows = [f"{directory}/ {count}" for directory, count in counts.most_common(MAX_DIRECTORIES)]
    rest = len(counts) - len(rows)
    return [*rows, f"{rest} more directories"] if rest > 0 else rows


def _file_row(row: Mapping[str, Any]) -> str:
    return f"{row.get('status')} {_path(row)}"


def _path(row: Mapping[str, Any]) -> str:
    return str(row.get("path", ""))


def _paths_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_path(row) for row in rows]


def _within_limit(value: Any, keep: str = "") -> Any:
    """Cut lists and texts until the answer fits; the list `keep` has pages and stays."""
    for items in (MAX_ITEMS, MAX_ITEMS // 2, MAX_ITEMS // 4, 5, 1):
        answer = _cut(value, items, keep)
        if len(json.dumps(answer, ensure_ascii=False)) <= LIMIT:
            return answer
    return _cut(value, 0, keep)


def _cut(value: Any, items: int, keep: str = "") -> Any:
    if isinstance(value, str):
        return (
            value
            if len(value) <= MAX_TEXT
            else f"{value[:MAX_TEXT]}... ({len(value) - MAX_TEXT} more characters)"
        )
    if isinstance(value, list):
        return [_cut(one, items) for one in value[:items]]
    if not isinstance(value, dict):
        return value
    answer: Json = {}
    for name, one in value.items():
        answer[name] = one if name == keep else _cut(one, items)
        if isinstance(one, list) and len(one) > items and name != keep:
            answer[f"{name}_total"] = len(one)
    return answer
