"""Homebrew's packages: `Cellar/<name>/<version>`, and `Caskroom/<name>/<version>` for applications.

What came along with another one says so in its receipt.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from git_envhist.model import Fact
from git_envhist.probes.system_packages import BREWS

ROOMS = ("Cellar", "Caskroom")
RECEIPT = "INSTALL_RECEIPT.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,100}\Z")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:,@~-]{0,100}\Z")
MAX_SIZE = 1 << 20


def installed(root: str) -> Iterator[Fact]:
    """The packages that are installed, each version of each."""
    for prefix in BREWS:
        for room in ROOMS:
            place = os.path.join(root, prefix, room)
            for name in _directories(place, NAME):
                for version in _directories(os.path.join(place, name), VERSION):
                    auto = came_along(_read(os.path.join(place, name, version, RECEIPT)))
                    yield Fact("system", name, version, by="brew", auto=auto)


def came_along(receipt: bytes) -> bool:
    """Whether a receipt says that nobody asked for it."""
    try:
        told = json.loads(receipt)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("installed_on_request") is False


def _directories(place: str, names: re.Pattern[str]) -> list[str]:
    try:
        with os.scandir(place) as found:
            return sorted(one.name for one in found if names.match(one.name) and one.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_SIZE)
    except OSError:
        return b""
