"""Read Homebrew's packages: `Cellar/<name>/<version>` and, for applications, `Caskroom/<name>/<version>`.

The receipt of a package tells whether it was installed as a dependency.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from git_envhist.model import Fact
from git_envhist.probes.system_packages import BREW_PREFIXES

DIRECTORIES = ("Cellar", "Caskroom")
RECEIPT = "INSTALL_RECEIPT.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,100}\Z")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:,@~-]{0,100}\Z")
MAX_SIZE = 1 << 20


def installed(root: str) -> Iterator[Fact]:
    """Yield the installed packages, each version separately."""
    for prefix in BREW_PREFIXES:
        for directory in DIRECTORIES:
            place = os.path.join(root, prefix, directory)
            for name in _directories(place, NAME):
                for version in _directories(os.path.join(place, name), VERSION):
                    auto = is_dependency(_read(os.path.join(place, name, version, RECEIPT)))
                    yield Fact("system", name, version, by="brew", auto=auto)


def is_dependency(receipt: bytes) -> bool:
    """Return whether a receipt shows that the package was installed as a dependency."""
    try:
        receipt_fields = json.loads(receipt)
    except (ValueError, RecursionError):
        return False
    return isinstance(receipt_fields, dict) and receipt_fields.get("installed_on_request") is False


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
