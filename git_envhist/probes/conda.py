"""Conda's packages: the records in `conda-meta`, told by their names, `<name>-<version>-<build>.json`.

Conda writes into `conda-meta/history` what it was asked for; what is in none of these lists came along. Where nobody
wrote one, nothing is known of that.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.keys import key_of

PROBE = "conda"
RECORD = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,100})-([0-9A-Za-z][0-9A-Za-z.!+_]{0,80})-([0-9A-Za-z_.+]{1,80})\.json\Z"
)
SPECS = re.compile(r"^# (update|remove|neutered) specs: (\[.{0,100000}\])\r?$", re.MULTILINE)
# `python=3.11`, `numpy >=1.2`, `conda-forge::pip[version=1]`
SPEC = re.compile(r"(?:[^\s]{1,200}::)?([A-Za-z0-9_][A-Za-z0-9_.-]{0,100})")


def wants(directory: bytes) -> bool:
    return directory.endswith(b"conda-meta")


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The packages of the environment that the directory stands in."""
    place = directory.rpartition(b"/")[0]
    history = files[b"history"].data if b"history" in files else None
    asked = asked_for((history or b"").decode("utf-8", "replace"))
    for name in files:
        record = RECORD.match(name.decode("utf-8", "replace"))
        if record is not None:
            package, version, build = record.groups()
            auto = bool(asked) and package.lower() not in asked
            yield Fact(PROBE, key_of(place, package), f"{version}-{build}", EnvPath(directory), PROBE, auto)


def asked_for(history: str) -> frozenset[str]:
    """The packages that somebody asked for and did not ask to remove again."""
    asked: set[str] = set()
    for what, listed in SPECS.findall(history):
        names = {found[1].lower() for found in map(SPEC.match, _strings(listed)) if found is not None}
        asked = asked - names if what == "remove" else asked | names
    return frozenset(asked)


def _strings(listed: str) -> list[str]:
    try:
        told = literal_eval(listed)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [one for one in told if isinstance(one, str)] if isinstance(told, list) else []
