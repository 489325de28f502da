"""Parse TOML texts of any author in bounded time (pure)."""

from __future__ import annotations

import tomllib
from typing import Any

MAX_DOTS = 200
"""The number of dots in a line: the time of the parser grows with the square of the parts of a key."""


def read_toml(text: str) -> dict[str, Any]:
    """Return the mapping in a text; raise `ValueError` or `RecursionError` if it cannot be parsed."""
    if text.count(".") > MAX_DOTS and any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        raise ValueError("too many dots in a line")
    return tomllib.loads(text)
