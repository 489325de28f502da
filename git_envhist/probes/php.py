"""List PHP packages that Composer installed, from `vendor/composer/installed.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.fact_keys import key_of

PROBE = "composer"
LIST = b"installed.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}/[A-Za-z0-9][A-Za-z0-9_.-]{0,100}\Z")
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_/#@-]{0,100}\Z")
COMMIT = re.compile(r"[0-9a-f]{7,64}\Z")
COMMIT_LENGTH = 7


def wants(directory: bytes) -> bool:
    return directory.endswith(b"/composer")


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the packages of the vendor directory that contains this directory."""
    if LIST not in files:
        return
    place = directory.rpartition(b"/")[0]
    for package in _packages(files[LIST].data or b""):
        name, version = package.get("name"), package.get("version")
        if isinstance(name, str) and isinstance(version, str) and NAME.match(name) and VERSION.match(version):
            version_text = version + _commit(package) if version.startswith("dev-") else version
            yield Fact(PROBE, key_of(place, name), version_text, EnvPath(directory))


def _packages(data: bytes) -> list[dict[str, Any]]:
    """Return the packages; Composer 1 wrote a plain list."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return []
    packages = value.get("packages") if isinstance(value, dict) else value
    return (
        [package for package in packages if isinstance(package, dict)] if isinstance(packages, list) else []
    )


def _commit(package: dict[str, Any]) -> str:
    """Return the commit of a branch version, because a branch moves."""
    source = package.get("source")
    reference = source.get("reference") if isinstance(source, dict) else None
    found = isinstance(reference, str) and COMMIT.match(reference)
    return f" {reference[:COMMIT_LENGTH]}" if found and reference else ""
