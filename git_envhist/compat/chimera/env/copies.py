"""What chimera itself left in a directory: copies of it by numbers, and how many are to be kept."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator

STATE_DIRNAME, LEGACY_CHECKPOINT_DIRNAME = ".chimera", ".chimera_checkpoints"
CONFIG = "config.toml"


def places_of_copies(root: str) -> tuple[str, str]:
    """Where there may be some, the newer place first."""
    return os.path.join(root, STATE_DIRNAME, "checkpoints"), os.path.join(root, LEGACY_CHECKPOINT_DIRNAME)


def find_copy(root: str, number: str) -> str | None:
    """The copy of a number."""
    found = (os.path.join(place, number) for place in places_of_copies(root) if number.isdecimal())
    return next((place for place in found if os.path.isdir(place)), None)


def above_copies(root: str) -> int:
    """The lowest number that no copy has."""
    return max((number + 1 for place in places_of_copies(root) for number in _numbers(place)), default=0)


def retained(root: str) -> int | None:
    """How many checkpoints the user wants to be kept: `[storage.checkpoints] retain`, the project first."""
    places = (root, os.path.expanduser("~"))
    said = (_retain(os.path.join(place, STATE_DIRNAME, CONFIG)) for place in places)
    return next((count for count in said if count is not None), None)


def _numbers(directory: str) -> Iterator[int]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _retain(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            said = tomllib.load(file)
        count = said["storage"]["checkpoints"]["retain"]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) and count > 0 else None
