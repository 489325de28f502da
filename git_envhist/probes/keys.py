"""How a key is spelled: the place, and the name that stands there."""

from __future__ import annotations


def key_of(place: bytes, name: str) -> str:
    """`.venv/flask`; a name that has slashes itself stands behind two: `vendor//symfony/console`."""
    slashes = "//" if "/" in name else "/" if place else ""
    return f"{text_of(place)}{slashes}{name}"


def text_of(path: bytes) -> str:
    """A path as a key has it."""
    return path.decode("utf-8", "surrogateescape")
