"""Node's packages: whatever stands in a `node_modules`, at any depth, as npm, pnpm and yarn lay it out.

The name is that of the directory, which is what a program asks for. pnpm keeps each package once, below
`node_modules/.pnpm/<name>@<version>`, and links to it, as yarn may below `node_modules/.store`: they are told as
packages of that `node_modules`. Yarn without `node_modules` has a list in `.pnp.cjs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from git_envhist.facts.keys import text_of
from git_envhist.facts.pnp import read_list, read_object
from git_envhist.facts.probe import Files, Keyed
from git_envhist.model import EnvPath, Fact

PROBE = "npm"
PACKAGE = re.compile(rb"(?:^|/)node_modules/((?:@[^/@][^/]*/)?[^/.@][^/]*)\Z")
VIRTUAL = re.compile(rb"(^|/)node_modules/\.(?:pnpm|store)/[^/]+/node_modules/((?:@[^/]+/)?[^/]+)\Z")
STORED = re.compile(rb"(^|/)node_modules/\.store/[^/]+/package\Z")
LISTS = (b".pnp.cjs", b".pnp.js", b".pnp.data.json")
NAME = re.compile(r"(?:@[A-Za-z0-9._-]{1,100}/)?[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\Z")
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~-]{0,100}\Z")


def wants(directory: bytes) -> bool:
    # A list stands beside a `package.json`, anywhere but among the packages; few directories there hold one of the two.
    return b"node_modules" not in directory or PACKAGE.search(directory) is not None or _is_stored(directory)


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The package of one directory, or those of a list."""
    if b"package.json" in files and (PACKAGE.search(directory) is not None or _is_stored(directory)):
        yield from _package(directory, files[b"package.json"].data or b"")
    for name in LISTS:
        if name in files:
            yield from _listed(directory, name, files[name].data or b"")


def _package(directory: bytes, data: bytes) -> Iterator[Fact]:
    told = read_object(data)
    version, name = told.get("version"), told.get("name")
    if isinstance(version, str) and VERSION.match(version):
        key = VIRTUAL.sub(rb"\1node_modules/\2", directory)
        if _is_stored(directory):
            if not (isinstance(name, str) and NAME.match(name)):
                return
            key = STORED.sub(rb"\1node_modules/", directory) + name.encode("ascii")
        yield Fact(PROBE, text_of(key), version, EnvPath(directory))


def _listed(directory: bytes, name: bytes, data: bytes) -> Iterator[Fact]:
    place = directory + b"/" + name if directory else name
    for package, version, auto in read_list(data):
        if NAME.match(package) and VERSION.match(version):
            yield Fact(PROBE, f"{text_of(place)}/{package}", version, EnvPath(directory), auto=auto)


def _is_stored(directory: bytes) -> bool:
    return STORED.search(directory) is not None
