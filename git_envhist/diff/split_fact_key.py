"""Split the key of a fact into its place and its name: `.venv` and `flask` of `.venv/flask` (pure)."""

from __future__ import annotations

from git_envhist.lazy import pattern
from git_envhist.model import FactChange

SET_OFF = pattern(r"(?<![:/])//(?=[^/])")
"""Separates a name that contains slashes itself; before the paths of an additional root there is a colon."""


def place_of(change: FactChange) -> str:
    """Return the part of a key before its last name: `.venv` of `.venv/flask`."""
    return change.key[: -len(name_of(change))].rstrip("/")


def name_of(change: FactChange) -> str:
    """Return the last name of a key, with its scope: `flask`, `@types/node`; after two slashes `symfony/console`."""
    set_off = list(SET_OFF.finditer(change.key))
    if set_off:
        return change.key[set_off[-1].end() :]
    place, _, name = change.key.rpartition("/")
    scope = place.rpartition("/")[2]
    return f"{scope}/{name}" if scope.startswith("@") else name or change.key
