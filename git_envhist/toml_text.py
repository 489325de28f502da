"""Parse TOML texts of any author in bounded time (pure)."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MAX_DOTS = 200
"""The number of dots in a key or a header: the time of the parser grows with the square of its parts."""
STRING_OR_COMMENT = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5})?'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5})?"
    r'|"(?:[^"\\\n]++|\\[^\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
"""A string that is never closed ends the text or the line: the parser does not read beyond it."""
BETWEEN_KEYS = re.compile(r"[\n,={}]")


def read_toml(text: str) -> dict[str, Any]:
    """Return the mapping in a text; raise `ValueError` or `RecursionError` if it cannot be parsed."""
    if text.count(".") > MAX_DOTS and _has_long_key(text):
        raise ValueError("too many dots in a key")
    return tomllib.loads(text)


def _has_long_key(text: str) -> bool:
    if all(line.count(".") <= MAX_DOTS for line in text.split("\n")):
        return False
    bare = STRING_OR_COMMENT.sub("", text.replace("\r\n", "\n"))
    return any(part.count(".") > MAX_DOTS for part in BETWEEN_KEYS.split(bare))
