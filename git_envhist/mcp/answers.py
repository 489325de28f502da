"""Bound the answers of tools to what a model can read (pure).

Counts and the plan's id come first, then facts and directories, then one page of the long list; the cursor of the next
page comes with it. A first page has at most about 2,000 tokens; no answer has more than about 8,000.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

PAGE = 3_000
"""Characters of one page of a long list; a token has three to four."""
TEXT_PAGE = 6_000
"""Characters of one page of a file."""
LIMIT = 24_000
"""Characters of a whole answer."""
MAX_ITEMS = 30
"""Items of a list that has no pages, and facts of a first page."""
MAX_TEXT = 600
MAX_TITLE = 200
MAX_DIRECTORIES = 12
MAX_DEPTH = 2
"""Components by which paths are counted."""
FACTS = "f"
"""The first letter of a cursor in the facts; other cursors are places in the list of paths."""
EMPTY: tuple[Any, ...] = (None, [], {}, "")

CHECK = ("status", "exit_code", "signal", "timed_out", "command", "duration_ms", "at", "output_tail")
"""Members of a check's result that an answer has."""


def diff_answer(value: Mapping[str, Any], cursor: str | None = None) -> Json:
    """Return the answer to a comparison: counts, facts and directories, or on later pages one list."""
    rows = [_file_row(row) for row in value.get("files", ())]
    head = {name: one for name, one in value.items() if name not in ("schema", "files", "facts")}
    return _paged(
        head, value.get("facts", ()), ("files", rows), [_path(row) for row in value.get("files", ())], cursor
    )


def plan_answer(value: Mapping[str, Any], title: str | None, cursor: str | None = None) -> Json:
    """Return the answer to a plan: its id, counts and what the person must know, then the steps by page."""
    plan = value.get("plan") or {}
    steps = plan.get("steps", ())
    rows = [f"{row.get('action')} {_path(row)}" for row in steps]
    skipped = Counter(str(row.get("why", row.get("reason", "skipped"))) for row in plan.get("left_alone", ()))
    head = {"plan_id": value.get("plan_id"), "counts": plan.get("counts"), "skipped": dict(skipped)}
    without = ("schema", "plan", "plan_id", "story", "dry_run", "changed", "verified", "duration_ms")
    more = {name: one for name, one in value.items() if name not in without and one not in EMPTY}
    named = {"title": title} if title else {}
    paths = [_path(row) for row in steps]
    return _paged({**head, **named, **more}, value.get("story", ()), ("steps", rows), paths, cursor)


def snapshot_answer(value: Mapping[str, Any], cursor: str | None = None) -> Json:
    """Return one snapshot: its details, then the changed paths by page."""
    changed = value.get("env_changed") or {}
    rows = [_file_row(row) for row in changed.get("paths", ())]
    counts = {name: one for name, one in changed.items() if name != "paths"}
    without = (
        "schema",
        "env_changed",
        "story",
        "verify",
        "verdicts",
        "git_changed",
        "intent_source",
        "format",
        "commit",
    )
    head = _without_empty({name: one for name, one in value.items() if name not in without})
    verdicts = [_check(one) for one in value.get("verdicts") or ()][-MAX_ITEMS:]
    paths = [_path(row) for row in changed.get("paths", ())]
    whole = {**head, "verdicts": verdicts, "counts": counts}
    return _paged(whole, value.get("story", ()), ("paths", rows), paths, cursor)


def list_answer(values: Sequence[Mapping[str, Any]]) -> Json:
    """Return the snapshots of a list, each with its id, time, title and summary, shortened to fit."""
    for text in (MAX_TITLE, MAX_TITLE // 2, MAX_TITLE // 5):
        answer = {"snapshots": [_list_row(value, text) for value in values]}
        if _size(answer) <= LIMIT:
            break
    return answer


def origins_answer(value: Mapping[str, Any]) -> Json:
    """Return the steps that changed a subject, without members that are empty."""
    without = ("commands", "trigger", "trusted", "restored_from", "head", "branch", "intent")
    steps = []
    for step in value.get("steps", ()):
        kept = _without_empty({name: one for name, one in step.items() if name not in without})
        checks = {name: _check(kept[name]) for name in ("check_before", "check_after") if name in kept}
        steps.append({**kept, **checks})
    head = {name: one for name, one in value.items() if name not in ("schema", "steps")}
    answer: Json = _within_limit({**head, "steps": steps})
    return answer


def failure_answer(value: Mapping[str, Any]) -> Json:
    """Return the step that broke a check, and its likeliest changes, without members that are empty."""
    kept = {name: one for name, one in value.items() if name not in ("schema", "changes", "check")}
    changes = [_without_empty(one) for one in value.get("changes", ())]
    check = _check(value["check"]) if value.get("check") else {}
    answer: Json = _within_limit(
        {**kept, "name": check.get("command", ""), "check": check, "changes": changes}
    )
    return answer


def file_answer(value: Mapping[str, Any], cursor: str | None = None) -> Json:
    """Return a file, its text by page."""
    text, place = value.get("text"), int(cursor or 0)
    head = {name: one for name, one in value.items() if name not in ("schema", "text")}
    if text is None:
        return {**head, "text": None, "next_cursor": None}
    following = place + TEXT_PAGE
    more = str(following) if following < len(text) else None
    return {**head, "characters": len(text), "text": text[place:following], "next_cursor": more}


def capture_answer(value: Mapping[str, Any]) -> Json:
    """Return the result of a capture: the row of its snapshot, counts, the check and warnings."""
    without = ("schema", "snapshot", "verify", "directories", "services")
    snapshot, check = value.get("snapshot"), value.get("verify")
    row = {} if snapshot is None else _list_row(snapshot)
    counts = {name: one for name, one in value.items() if name not in without}
    answer: Json = _within_limit({**row, **counts, **({"verify": _check(check)} if check else {})})
    return answer


def restore_answer(value: Mapping[str, Any]) -> Json:
    """Return the result of a restore: counts instead of its steps, and only members that say something."""
    plan = value.get("plan") or {}
    without = ("schema", "plan", "dry_run")
    kept = {name: one for name, one in value.items() if name not in without and one not in EMPTY}
    answer: Json = _within_limit({"changed": value.get("changed"), "counts": plan.get("counts"), **kept})
    return answer


def check_answer(value: Mapping[str, Any]) -> Json:
    """Return the result of a check, of one snapshot or of a bisection."""
    kept = {name: one for name, one in value.items() if name not in ("schema", "verify", "tried")}
    if "verify" in value:
        kept["verify"] = _check(value["verify"])
    if "tried" in value:
        kept["tried"] = [check_answer(one) for one in value["tried"]]
    answer: Json = _within_limit(kept)
    return answer


def result_answer(value: Any) -> Any:
    """Return the result of an operation, long lists cut and counted."""
    return _within_limit(
        {name: one for name, one in value.items() if name != "schema"} if isinstance(value, dict) else value
    )


def _list_row(value: Mapping[str, Any], text: int = MAX_TITLE) -> Json:
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
    return {name: _cut(one, MAX_ITEMS, text=text) for name, one in row.items() if one not in EMPTY}


def _without_empty(value: Any) -> Any:
    """Return a copy of the value without members that are empty."""
    if not isinstance(value, dict):
        return value
    kept = {name: _without_empty(one) for name, one in value.items()}
    return {name: one for name, one in kept.items() if one not in EMPTY}


def _check(value: Mapping[str, Any]) -> Json:
    return {name: value[name] for name in CHECK if value.get(name) not in (None, False, "")}


def _fact(value: Any) -> Any:
    """Return a fact without members that say nothing."""
    if not isinstance(value, Mapping):
        return value
    return {name: one for name, one in value.items() if one is not None and (name, one) != ("role", "direct")}


def _paged(
    head: Mapping[str, Any],
    facts: Sequence[Any],
    listed: tuple[str, Sequence[str]],
    paths: Sequence[str],
    cursor: str | None,
) -> Json:
    name, rows = listed
    own = {"plan_id": head["plan_id"]} if "plan_id" in head else {}
    if cursor is not None and cursor.startswith(FACTS):
        return {**own, **_facts(facts, int(cursor[1:])), name: [], f"{name}_total": len(rows)}
    page, following = _page(rows, int(cursor or 0))
    last = {name: page, f"{name}_total": len(rows), "next_cursor": following}
    if cursor:
        return {**own, **last}
    whole = {**head, **_facts(facts, 0), "directories": _directories(paths), **last}
    answer: Json = _within_limit(whole, keep=("facts", name))
    return answer


def _facts(facts: Sequence[Any], place: int) -> Json:
    """Return a page of the facts."""
    page = [_cut(_fact(one), MAX_ITEMS, text=MAX_TITLE) for one in facts[place : place + MAX_ITEMS]]
    following = place + MAX_ITEMS
    if following >= len(facts):
        return {"facts": page}
    return {"facts": page, "facts_total": len(facts), "next_facts_cursor": f"{FACTS}{following}"}


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


def _size(answer: Any) -> int:
    return len(json.dumps(answer, ensure_ascii=False))


def _within_limit(value: Any, keep: Sequence[str] = ()) -> Any:
    """Cut lists and texts until the answer fits; the lists `keep` have pages and stay."""
    for items in (MAX_ITEMS, MAX_ITEMS // 2, MAX_ITEMS // 4, 5, 1):
        answer = _cut(value, items, keep)
        if _size(answer) <= LIMIT:
            return answer
    return _cut(value, 0, keep)


def _cut(value: Any, items: int, keep: Sequence[str] = (), *, text: int = MAX_TEXT) -> Any:
    if isinstance(value, str):
        return value if len(value) <= text else f"{value[:text]}... ({len(value) - text} more characters)"
    if isinstance(value, list):
        return [_cut(one, items, text=text) for one in value[:items]]
    if not isinstance(value, dict):
        return value
    answer: Json = {}
    for name, one in value.items():
        answer[name] = one if name in keep else _cut(one, items, text=text)
        if isinstance(one, list) and len(one) > items and name not in keep:
            answer.setdefault(f"{name}_total", len(one))
    return answer
