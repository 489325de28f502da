"""JSON as it is printed: one line, UTF-8, and nothing in it that could command a terminal."""

from __future__ import annotations

import json


def dump(value: object) -> str:
    """A value as one line of JSON; letters that are not for showing stand as \\u escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    # Such letters stand only inside strings, where JSON allows this spelling of every one of them.
    return json.dumps(letter)[1:-1]
