"""Read Conda packages from the names of the records in `conda-meta`: `<name>-<version>-<build>.json`.

`conda-meta/history` lists requested packages; all others are dependencies. Without a history, all are equal.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.fact_keys import key_of

PROBE = "conda"
RECORD = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,100})-([0-9A-Za-z][0-9A-Za-z.!+_]{0,80})-([0-9A-Za-z_.+]{1,80})\.json\Z"
)
SPECS = re.compile(r"^# (update|remove|neutered) specs: (\[.{0,100000}\])\r?$", re.MULTILINE)
SPEC = re.compile(r"(?:[^\s]{1,200}::)?([A-Za-z0-9_][A-Za-z0-9_.-]{0,100})")


def wants(directory: bytes) -> bool:
    return directory.endswith(b"conda-meta")


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the packages of the environment that contains this directory."""
    place = directory.rpartition(b"/")[0]
    history = files[b"history"].data if b"history" in files else None
    requested = requested_packages((history or b"").decode("utf-8", "replace"))
    for name in files:
        record = RECORD.match(name.decode("utf-8", "replace"))
        if record is not None:
            package, version, build = record.groups()
            auto = bool(requested) and package.lower() not in requested
            yield Fact(PROBE, key_of(place, package), f"{version}-{build}", EnvPath(directory), PROBE, auto)


def requested_packages(history: str) -> frozenset[str]:
    """Return the packages that were requested and not removed again."""
    requested: set[str] = set()
    for action, listed in SPECS.findall(history):
        names = {found[1].lower() for found in map(SPEC.match, _strings(listed)) if found is not None}
        requested = requested - names if action == "remove" else requested | names
    return frozenset(requested)


def _strings(listed: str) -> list[str]:
    try:
        value = literal_eval(listed)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
