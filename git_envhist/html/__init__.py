"""The page as text: what is shown goes in as data, and the script shows it as text and nothing else.

Whatever stands in a history may have been written by somebody else. So nothing of it becomes markup: it is JSON in a
block that no browser runs, with every character spelled out that could end the block; and the page's own policy allows
the one style and the one script that stand in it, by their hashes, and no address at all.
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
from git_envhist.text import escape

BEGINNING = b'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv='
"""How every page of ours begins."""
MAX_TEXT = 2000
"""Of an intent more is not shown: `git envlog show` tells it all."""
SCRIPTS = tuple(f"script/{name}.js" for name in ("1-words", "2-charts", "3-card", "4-rows", "5-page"))
"""One script, in this order: what stands later uses what stands before."""
ENOUGH = 300
"""Up to so many moments each may be told at length."""
AT_LENGTH = {"story": 80, "cells": 14, "areas": 40, "paths": 60, "missing": 40}
IN_SHORT = {"story": 20, "cells": 8, "areas": 14, "paths": 8, "missing": 8}
"""How many rows of a moment are shown: a thousand moments stay below 5 MB."""
SHOWN = (
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
OF_VERDICT = (
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
"""What a check wrote is left out: a page is made to be passed on, and nobody knows what it may hold."""
Value = Mapping[str, object]


def document(title: str, made_at: str, newest_first: Sequence[Value]) -> str:
    """The page that shows some moments, each as `git envlog --json --stat` has it."""
    most = AT_LENGTH if len(newest_first) <= ENOUGH else IN_SHORT
    data = {"title": title, "made_at": made_at, "moments": [_shown(one, most) for one in newest_first]}
    style = _asset("page.css")
    script = '(() => {\n"use strict";\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    parts = {
        "title": as_markup(_spelled(title)),
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:",
        "style": style,
        "script": script,
        "data": _as_data(data),
    }
    # In one go: what is put in is not looked through for further places.
    before, *rest = _asset("page.html").split("{{")
    pieces = [before]
    for part in rest:
        name, _, after = part.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


def _shown(moment: Value, most: Mapping[str, int]) -> dict[str, object]:
    shown: dict[str, object] = {key: moment[key] for key in SHOWN if moment.get(key) not in (None, [], {})}
    verdict, changed, extent = moment["verify"], moment["env_changed"], moment["extent"]
    story, missing = moment["story"], moment["missing"]
    assert isinstance(changed, dict)
    assert isinstance(extent, dict)
    assert isinstance(story, list)
    assert isinstance(missing, list)
    shown["verify"] = {key: verdict[key] for key in OF_VERDICT} if isinstance(verdict, dict) else None
    shown["env_changed"] = {**changed, "paths": changed["paths"][: most["paths"]]}
    shown["extent"] = {**extent, "areas": extent["areas"][: most["areas"]]}
    shown["story"] = story[: most["story"]]
    shown["rows"] = _rows(story, most["cells"])
    shown["summary"] = with_minus_signs(str(moment["summary"]))
    if missing:
        shown["missing"] = [{"path": one["path"], "why": one["why"]} for one in missing[: most["missing"]]]
    shown["more"] = {
        "missing": max(0, len(missing) - most["missing"]),
        "areas": max(0, len(extent["areas"]) - most["areas"]),
    }
    return shown


def _rows(story: Sequence[Value], most: int) -> list[dict[str, object]]:
    """Return the rows of changed packages, services, databases and variables, as `git envdiff` prints them."""
    facts = facts_from_values(story)
    rows = fact_rows(facts, tuple(dict.fromkeys(fact.probe for fact in facts)))
    told: list[dict[str, object]] = [
        {"probe": row.probe, "place": row.place, "cells": row_cells(row, most)} for row in rows[:MAX_ROWS]
    ]
    if len(rows) > MAX_ROWS:
        told.append({"probe": "…", "place": "", "cells": [f"{len(rows) - MAX_ROWS} rows more"]})
    return told


def _as_data(value: object) -> str:
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _plain(value: object) -> object:
    """The same with every text as it may be shown."""
    if isinstance(value, str):
        return _spelled(value)
    if isinstance(value, Mapping):
        return {_spelled(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _spelled(text: str) -> str:
    cut = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    return escape(cut, lines=True)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _asset(name: str) -> str:
    return files("git_envhist.html").joinpath(name).read_text("utf-8")


# A history as one file that a browser opens from disk.

__all__ = ["BEGINNING", "document"]
