"""Go's modules, where they are: downloaded into a module cache, vendored, built into a program.

A module's name has slashes, so it stands behind two: `go/pkg/mod//golang.org/x/text`. What a program was built from is
told below the program: `bin/gopls` has a version, `bin/gopls//golang.org/x/text` another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from git_envhist.facts.gobuild import read_build
from git_envhist.facts.keys import key_of, text_of
from git_envhist.facts.probe import Files, Keyed
from git_envhist.model import EnvPath, Fact

PROBE = "go"
DOWNLOADED = re.compile(rb"(?:^|/)cache/download/([^@]+)/@v\Z")
UNPACKED = re.compile(rb"((?:^|.*/)pkg/mod)/(?!cache/)([^@]+)@(v[0-9][^/@]*)\Z", re.DOTALL)
MODULES = b"modules.txt"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~/-]{0,200}\Z")
VERSION = re.compile(r"v\d[0-9A-Za-z.+-]{0,100}\Z")
CAPITAL = re.compile(r"!([a-z])")
"""A capital letter is written as `!` and the small one: some file systems hold them for the same."""
VENDORED = re.compile(r"^# (\S+)(?: (\S+))?(?: => (\S+)(?: (\S+))?)?$")
EXPLICIT = re.compile(r"^## (?:.*; ?)?explicit\b")


def wants(directory: bytes) -> bool:
    return not directory.startswith(b"node_modules/") and b"/node_modules/" not in directory


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The modules of one directory, whichever kind of directory it is."""
    name = directory.rpartition(b"/")[2]
    if name == b"@v":
        yield from _downloaded(directory, files)
    elif b"@" in name and b"go.mod" in files:
        yield from _unpacked(directory)
    elif name == b"vendor" and MODULES in files:
        yield from _vendored(directory, files[MODULES].data or b"")
    elif name == b"bin":
        yield from _programs(directory, files)


def _downloaded(directory: bytes, files: Files) -> Iterator[Fact]:
    found = DOWNLOADED.search(directory)
    for file in files if found is not None else ():
        if found is not None and file.endswith(b".zip"):
            place = directory[: found.start()]
            yield from _module(directory, place, _unescape(found[1]), _unescape(file.removesuffix(b".zip")))


def _unpacked(directory: bytes) -> Iterator[Fact]:
    found = UNPACKED.match(directory)
    if found is not None:
        yield from _module(directory, found[1], _unescape(found[2]), _unescape(found[3]))


def _vendored(directory: bytes, modules: bytes) -> Iterator[Fact]:
    """`# <module> <version>`, with `=> <another>` where it was replaced; `## explicit` where a go.mod names it."""
    lines = modules.decode("utf-8", "replace").splitlines()
    for line, after in pairwise([*lines, ""]):
        found = VENDORED.match(line)
        if found is not None and found[2] and found[2] != "=>":
            version = found[4] or found[2]
            auto = EXPLICIT.match(after) is None
            yield from _module(directory, directory, found[1], version, auto)


def _programs(directory: bytes, files: Files) -> Iterator[Fact]:
    for name, file in files.items():
        build = read_build(file.data) if file.data else None
        if build is not None:
            program = directory + b"/" + name
            told = f"{build.version} {build.go}".strip()
            yield Fact(PROBE, text_of(program), told, EnvPath(directory))
            for module, version in build.modules:
                yield from _module(directory, program, module, version, True)


def _module(directory: bytes, place: bytes, name: str, version: str, auto: bool = False) -> Iterator[Fact]:
    if NAME.match(name) and VERSION.match(version):
        yield Fact(PROBE, key_of(place, name), version, EnvPath(directory), auto=auto)


def _unescape(raw: bytes) -> str:
    return CAPITAL.sub(lambda found: found[1].upper(), raw.decode("utf-8", "replace"))
