"""Find the id of a new checkpoint in the output of a platform's command: text, JSON or NDJSON (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

IDS = ("checkpoint_id", "checkpointId", "id", "version", "external_id")
TEXTS = ("data", "message", "text", "result", "output")
MAX_LENGTH = 200
WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._:-]*[A-Za-z0-9])?"
ID = rf"['\"]?(?P<id>(?=[^\s'\"]*\d){WORD})['\"]?"
ID_PATTERNS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\bcheckpoint\s+{ID}\s+(?:was\s+|has\s+been\s+)?(?:created|saved|made|complete[d]?)\b",
        rf"\b(?:created|saved|made)\s+checkpoint\s*[:=]?\s*{ID}",
        rf"\bcheckpoint\s+(?:created|saved|made)\s*(?:as|[:=])?\s*{ID}",
        rf"\b(?:checkpoint\s+)?(?:id|version)\s*[:=]\s*{ID}",
    )
]
ASIDE = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
"""Usually counts and sizes."""
NUMBERED = re.compile(r"v\d+")
WHOLE = re.compile(WORD)


class PlatformError(ValueError):
    """The platform reported an error in its output."""


def find_id(output: str) -> str | None:
    """Return the id of the checkpoint that a command made, or None if its output contains none.

    Raises PlatformError for an error event.
    """
    values, text = _split_output(output)
    for value in values:
        if value.get("type") == "error" or (value.get("error") and not _id_of(value)):
            raise PlatformError(
                str(value.get("error") or value.get("data") or value.get("message") or "error")
            )
    named = [found for value in values if (found := _id_of(value)) is not None]
    if named:
        return named[-1]
    texts = [text, *(str(value[key]) for value in values for key in TEXTS if isinstance(value.get(key), str))]
    return _id_in("\n".join(texts))


def _split_output(output: str) -> tuple[list[dict[str, Any]], str]:
    """Return the JSON objects of an output, and its other lines."""
    try:
        return list(_objects(json.loads(output))), ""
    except ValueError:
        pass
    values: list[dict[str, Any]] = []
    lines: list[str] = []
    for line in output.splitlines():
        try:
            values += _objects(json.loads(line))
        except ValueError:
            lines.append(line)
    return values, "\n".join(lines)


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for one in value:
            yield from _objects(one)
    elif isinstance(value, dict):
        yield value
        for name in ("checkpoint", "data"):
            yield from _objects(value.get(name))
    elif not isinstance(value, str | None):
        # A bare number is treated as text: it may be an id.
        raise ValueError


def _id_of(value: dict[str, Any]) -> str | None:
    found = next((value[name] for name in IDS if value.get(name) is not None), None)
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    return _checked(str(found))


def _id_in(text: str) -> str | None:
    for pattern in ID_PATTERNS:
        found = list(pattern.finditer(text))
        if found:
            return _checked(found[-1]["id"])
    words = [word.strip(".,:;'\"") for word in ASIDE.sub(" ", text).split()]
    numbered = [word for word in words if NUMBERED.fullmatch(word)]
    last = [word for word in words if any(letter.isdigit() for letter in word)][-1:]
    chosen = numbered[-1:] or last
    return _checked(chosen[0]) if chosen else None


def _checked(found: str) -> str | None:
    return found if len(found) <= MAX_LENGTH and WHOLE.fullmatch(found) else None
