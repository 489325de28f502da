"""List Deno packages from `deno.lock`: packages of JSR and npm, and modules from URLs with a version.

Deno keeps packages in a cache outside the environment, so the lock file is the record of what a program loads.
Packages that `deno.json` or a member of the workspace imports are direct, all others are dependencies; a lock
file without a workspace does not distinguish them. Lock files of the versions 3 to 5 are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from git_envhist.model import EnvPath, Fact
from git_envhist.probes import package_directories
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.fact_keys import key_of
from git_envhist.probes.node import read_object

PROBE = "deno"
LOCK = b"deno.lock"
REGISTRIES = ("jsr", "npm")
PACKAGE = re.compile(
    r"((?:@[A-Za-z0-9._-]{1,100}/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,200})@(\d[0-9A-Za-z.+-]{0,100})(?:_.*)?\Z"
)
"""`@std/assert@1.0.13`; an npm package may be followed by `_` and its peers."""
URL = re.compile(r"https://([a-z0-9.-]{1,100}(?:/[A-Za-z0-9_.-]{1,100}){1,3})@(v?\d[0-9A-Za-z.+-]{0,60})/")
"""`https://deno.land/x/oak@v12.6.1/mod.ts`"""


def wants(directory: bytes) -> bool:
    return package_directories().isdisjoint(directory.split(b"/"))


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the packages and versioned modules of a lock file."""
    file = files.get(LOCK)
    if file is None or file.data is None or file.sealed:
        return
    place = directory + b"/" + LOCK if directory else LOCK
    for name, version, auto in dict.fromkeys(read_lock(file.data)):
        yield Fact(PROBE, key_of(place, name), version, EnvPath(directory), auto=auto)


def read_lock(data: bytes) -> Iterator[tuple[str, str, bool]]:
    """Yield (name, version, is a dependency) of a lock file; nothing if it has another format."""
    lock = read_object(data)
    # Version 3 has these tables one level deeper.
    packages = _table(lock, "packages") or lock
    direct = _direct_packages(_table(lock, "workspace"), _table(packages, "specifiers"))
    for registry in REGISTRIES:
        for package in _table(packages, registry):
            found = PACKAGE.match(package)
            if found is not None:
                yield found[1], found[2], bool(direct) and f"{registry}:{package}" not in direct
    for url in _table(lock, "remote"):
        found = URL.match(url)
        if found is not None:
            yield found[1], found[2], False


def _direct_packages(workspace: dict[str, Any], specifiers: dict[str, Any]) -> set[str]:
    """Return the packages that the workspace imports, as `jsr:@std/assert@1.0.13`."""
    members = [member for member in _table(workspace, "members").values() if isinstance(member, dict)]
    direct = set()
    for part in (workspace, *members, *[_table(one, "packageJson") for one in (workspace, *members)]):
        dependencies = part.get("dependencies")
        for specifier in dependencies if isinstance(dependencies, list) else ():
            resolved = specifiers.get(specifier) if isinstance(specifier, str) else None
            if isinstance(resolved, str):
                # In version 3 the value is the whole name, later the version alone.
                direct.add(resolved if ":" in resolved else f"{specifier.rpartition('@')[0]}@{resolved}")
    return direct


def _table(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}
