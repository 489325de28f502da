"""Write a history as one HTML file that a browser opens from disk.

Anything in a history may come from another person, so none of it becomes markup: it is embedded as JSON in a block
that no browser runs, with every character escaped that could end the block, and the script inserts it only as text.
The page's content security policy allows its one style and its one script by hash, and no address at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape as as_markup
from importlib.resources import files

from git_envhist.diff.facts import fact_rows, facts_from_values, row_cells
from git_envhist.diff.summary import with_minus_signs
from git_envhist.printable_text import escape

BEGINNING = b'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv='
"""The first bytes of every page that we write."""
MAX_TEXT = 2000
"""Maximum length of a text; `git envlog show` prints all of it."""
SCRIPTS = tuple(f"script/{name}.js" for name in ("1-words", "2-charts", "3-card", "4-rows", "5-page"))
"""The files of the script, in this order: later files use earlier ones."""
MAX_FULL = 300
"""Up to this many snapshots are shown with all rows."""
FULL_LIMITS = {"story": 80, "cells": 14, "areas": 40, "paths": 60, "missing": 40}
SHORT_LIMITS = {"story": 20, "cells": 8, "areas": 14, "paths": 8, "missing": 8}
"""Number of rows per snapshot: a page with a thousand snapshots stays below 5 MB."""
SNAPSHOT_MEMBERS = (
    *("id", "timeline", "at", "intent", "title", "names", "trigger", "actor", "trusted", "head", "branch"),
    *(
        "notes",
        "complete",
        "external_id",
        "tasks",
        "effects",
        "restored_from",
        "services",
        "folded_into",
        "folds",
    ),
)
MAX_ROWS = 24
MAX_CALLS, MAX_CALL = 6, 120
"""Calls of tools per snapshot, and characters of what each ran."""
VERDICT_MEMBERS = (
    *(
        "status",
        "command",
        "exit_code",
        "signal",
        "timed_out",
        "duration_ms",
        "at",
        "carried_from",
        "services",
        "claimed_by",
    ),
)
"""Members of a check result.

Its output is left out, because a page is made to be shared and the output may contain anything.
"""
Value = Mapping[str, object]


def document(title: str, made_at: str, newest_first: Sequence[Value]) -> str:
    """Return the page for some snapshots, each as `git envlog --json --stat` prints it."""
    limits = FULL_LIMITS if len(newest_first) <= MAX_FULL else SHORT_LIMITS
    data = {"title": title, "made_at": made_at, "moments": [_shown(one, limits) for one in newest_first]}
    style = _asset("page.css")
    script = '(() => {\n"use strict";\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    parts = {
        "title": as_markup(_escaped(title)),
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:",
        "style": style,
        "script": script,
        "data": _as_data(data),
    }
    # Replace all placeholders in one pass, so that inserted text is not searched for placeholders.
    before, *rest = _asset("page.html").split("{{")
    pieces = [before]
    for part in rest:
        name, _, after = part.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


def _shown(snapshot: Value, limits: Mapping[str, int]) -> dict[str, object]:
    shown: dict[str, object] = {
        key: snapshot[key] for key in SNAPSHOT_MEMBERS if snapshot.get(key) not in (None, [], {})
    }
    verdict, changed, extent = snapshot["verify"], snapshot["env_changed"], snapshot["extent"]
    story, missing = snapshot["story"], snapshot["missing"]
    assert isinstance(changed, dict)
    assert isinstance(extent, dict)
    assert isinstance(story, list)
    assert isinstance(missing, list)
    shown["calls"] = _shown_calls(snapshot.get("calls"))
    shown["verify"] = _shown_verdict(verdict)
    shown["unfinished"] = _shown_verdict(_unfinished_check(snapshot))
    shown["env_changed"] = {**changed, "paths": changed["paths"][: limits["paths"]]}
    shown["extent"] = {**extent, "areas": extent["areas"][: limits["areas"]]}
    shown["story"] = story[: limits["story"]]
    shown["rows"] = _rows(story, limits["cells"])
    shown["summary"] = with_minus_signs(str(snapshot["summary"]))
    if missing:
        shown["missing"] = [{"path": one["path"], "why": one["why"]} for one in missing[: limits["missing"]]]
    shown["more"] = {
        "missing": max(0, len(missing) - limits["missing"]),
        "areas": max(0, len(extent["areas"]) - limits["areas"]),
    }
    return shown


def _shown_calls(calls: object) -> list[dict[str, object]]:
    """Return the calls of tools that ran in a step: the tool, what it ran, and the agent."""
    ran = [one for one in calls if one["began"] is not None] if isinstance(calls, list) else []
    return [
        {
            "tool": one["tool"],
            "what": " ".join((one["command"] or " ".join(one["paths"])).split())[:MAX_CALL],
            "agent": one["agent"],
            "failed": one["failed"] is True,
        }
        for one in ran[:MAX_CALLS]
    ]


def _shown_verdict(verdict: object) -> dict[str, object] | None:
    return {key: verdict[key] for key in VERDICT_MEMBERS} if isinstance(verdict, dict) else None


def _unfinished_check(snapshot: Value) -> object:
    """Return the error of the latest check if an earlier verdict is valid in spite of it, else None."""
    verdicts = snapshot["verdicts"]
    assert isinstance(verdicts, list)
    signed = [one for one in verdicts if one["claimed_by"] is None] or verdicts
    return signed[-1] if signed and signed[-1] != snapshot["verify"] else None


def _rows(story: Sequence[Value], limits: int) -> list[dict[str, object]]:
    """Return the rows of changed packages, services, databases and variables, as `git envdiff` prints them."""
    facts = facts_from_values(story)
    rows = fact_rows(facts, tuple(dict.fromkeys(fact.probe for fact in facts)))
    rows_of_cells: list[dict[str, object]] = [
        {"label": row.label, "place": row.place, "cells": row_cells(row, limits)} for row in rows[:MAX_ROWS]
    ]
    if len(rows) > MAX_ROWS:
        rows_of_cells.append({"probe": "…", "place": "", "cells": [f"{len(rows) - MAX_ROWS} rows more"]})
    return rows_of_cells


def _as_data(value: object) -> str:
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _plain(value: object) -> object:
    """Return the value with every text escaped and cut for display."""
    if isinstance(value, str):
        return _escaped(value)
    if isinstance(value, Mapping):
        return {_escaped(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _escaped(text: str) -> str:
    cut = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    return escape(cut, lines=True)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _asset(name: str) -> str:
    return files("git_envhist.html").joinpath(name).read_text("utf-8")


__all__ = ["BEGINNING", "document"]
