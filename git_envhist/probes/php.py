"""PHP's packages: what composer says of those it installed, in `vendor/composer/installed.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.keys import key_of

PROBE = "composer"
LIST = b"installed.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}/[A-Za-z0-9][A-Za-z0-9_.-]{0,100}\Z")
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_/#@-]{0,100}\Z")
COMMIT = re.compile(r"[0-9a-f]{7,64}\Z")
SHOWN_OF_A_COMMIT = 7


def wants(directory: bytes) -> bool:
    return directory.endswith(b"/composer")


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The packages of the directory that composer's own stands in."""
    if LIST not in files:
        return
    place = directory.rpartition(b"/")[0]
    for package in _packages(files[LIST].data or b""):
        name, version = package.get("name"), package.get("version")
        if isinstance(name, str) and isinstance(version, str) and NAME.match(name) and VERSION.match(version):
            told = version + _commit(package) if version.startswith("dev-") else version
            yield Fact(PROBE, key_of(place, name), told, EnvPath(directory))


def _packages(data: bytes) -> list[dict[str, Any]]:
    """Since composer 2 the list has a name of its own; before, it was all there was."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return []
    packages = told.get("packages") if isinstance(told, dict) else told
    return (
        [package for package in packages if isinstance(package, dict)] if isinstance(packages, list) else []
    )


def _commit(package: dict[str, Any]) -> str:
    """A branch is another one with each commit."""
    source = package.get("source")
    reference = source.get("reference") if isinstance(source, dict) else None
    found = isinstance(reference, str) and COMMIT.match(reference)
    return f" {reference[:SHOWN_OF_A_COMMIT]}" if found and reference else ""
