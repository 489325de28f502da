"""Node's packages: whatever stands in a `node_modules`, at any depth, as npm, pnpm and yarn lay it out.

The name is that of the directory, which is what a program asks for. pnpm keeps each package once, below
`node_modules/.pnpm/<name>@<version>`, and links to it: they are told as packages of that `node_modules`. Yarn without
`node_modules` keeps archives whose names say all there is to know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from git_envhist.facts.probe import Files, Keyed
from git_envhist.model import EnvPath, Fact

PROBE = "npm"
PACKAGE = re.compile(rb"(?:^|/)node_modules/((?:@[^/@][^/]*/)?[^/.@][^/]*)\Z")
VIRTUAL = re.compile(rb"(^|/)node_modules/\.pnpm/[^/]+/node_modules/((?:@[^/]+/)?[^/]+)\Z")
CACHE = re.compile(rb"(?:^|/)\.yarn/cache\Z")
ARCHIVE = re.compile(
    rb"(?:(@[a-z0-9._-]+)-)?([a-zA-Z0-9._-]+?)-npm-([0-9][0-9A-Za-z.+-]*?)-[0-9a-f]{6,}(?:-[0-9a-f]+)?\.zip\Z"
)
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~-]{0,100}\Z")


def wants(directory: bytes) -> bool:
    return PACKAGE.search(directory) is not None or CACHE.search(directory) is not None


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The package of one directory, or those whose archives stand in a cache."""
    if b"package.json" in files and PACKAGE.search(directory) is not None:
        yield from _package(directory, files[b"package.json"].data or b"")
    elif CACHE.search(directory) is not None:
        for name in files:
            found = ARCHIVE.match(name)
            if found is not None:
                scope = found[1] + b"/" if found[1] else b""
                key = directory + b"/" + scope + found[2]
                yield Fact(PROBE, _text(key), found[3].decode("ascii"), EnvPath(directory))


def _package(directory: bytes, data: bytes) -> Iterator[Fact]:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return
    version = told.get("version") if isinstance(told, dict) else None
    if isinstance(version, str) and VERSION.match(version):
        key = VIRTUAL.sub(rb"\1node_modules/\2", directory)
        yield Fact(PROBE, _text(key), version, EnvPath(directory))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
