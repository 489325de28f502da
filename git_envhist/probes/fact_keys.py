"""Spelling of fact keys: the place and the name."""

from __future__ import annotations


def key_of(place: bytes, name: str) -> str:
    """Return `.venv/flask`; names with slashes follow two slashes: `vendor//symfony/console`."""
    slashes = "//" if "/" in name else "/" if place else ""
    return f"{text_of(place)}{slashes}{name}"


def text_of(path: bytes) -> str:
    """Return a path as used in a key."""
    return path.decode("utf-8", "surrogateescape")
