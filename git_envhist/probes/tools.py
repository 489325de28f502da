"""The interpreters and toolchains that an environment asks for or stands on, as its files say; nothing of it is run.

Each tool has its own place to say which version it is to be; several say the same of several tools. The key names the
tool, whoever says so, so that a project that goes from one of these files to another is told by its versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed

PROBE = "tools"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,40}\Z")
VERSION = re.compile(r"[0-9A-Za-z^~<>=|.*+/ -]{1,80}\Z")
CALLED = {"nodejs": "node", "golang": "go", "java": "java"}
"""Names that some of these files have for tools that others call otherwise."""
ENGINES = ("node", "npm", "pnpm", "yarn", "bun", "deno")
GO = re.compile(rb"^(go|toolchain)[ \t]+(?:go)?(\S+)[ \t\r]*(?://.*)?$", re.MULTILINE)
CHANNEL = re.compile(rb"^[ \t]*channel[ \t]*=[ \t]*[\"']([^\"'\n]{1,80})[\"']", re.MULTILINE)
SETTING = re.compile(rb"^[ \t]*(home|executable)[ \t]*=[ \t]*(\S.{0,1000}?)[ \t\r]*$", re.MULTILINE)
BASE = "base-python"
MAX_LENGTH = 1 << 16

Told = Iterator[tuple[str, str]]
"""(tool, version), as a file spells it."""


def wants(directory: bytes) -> bool:
    # What a package was made with is nobody's choice here.
    return not {b"node_modules", b"site-packages", b"_vendor", b"vendor"} & set(directory.split(b"/"))


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The versions that the files of one directory name."""
    place = directory.decode("utf-8", "surrogateescape")
    for name, file in files.items():
        read = READERS.get(name)
        if read is None or file.data is None:
            continue
        for tool, version in read(file.data if name == b"package.json" else file.data[:MAX_LENGTH]):
            key = f"{place}/{tool}" if place else tool
            yield Fact(PROBE, key, version, EnvPath(directory), by=name.decode("ascii"))


def _one(tool: str) -> Callable[[bytes], Told]:
    """A file that says nothing but the version, or one a line."""

    def read(data: bytes) -> Told:
        for line in data.decode("utf-8", "replace").splitlines():
            yield from _checked(tool, line.partition("#")[0].strip())

    return read


def _table(data: bytes) -> Told:
    """`.tool-versions`: a tool a line, and the versions that will do."""
    for line in data.decode("utf-8", "replace").splitlines():
        tool, *versions = line.partition("#")[0].split() or [""]
        if versions and NAME.match(tool):
            yield from _checked(CALLED.get(tool, tool), versions[0])


def _go(data: bytes) -> Told:
    for word, version in GO.findall(data):
        tool = "go" if word == b"go" else "go-toolchain"
        yield from _checked(tool, version.decode("utf-8", "replace"))


def _rust(data: bytes) -> Told:
    """`rust-toolchain`, which may be a table or the name of a toolchain alone."""
    found = CHANNEL.search(data)
    if found is not None:
        yield from _checked("rust", found[1].decode("utf-8", "replace"))
    elif b"[" not in data:
        yield from _one("rust")(data)


def _node(data: bytes) -> Told:
    """`package.json`: `engines`, and the manager of packages that is to be used."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(told, dict):
        return
    for table in (told.get("engines"), told.get("volta")):
        if isinstance(table, dict):
            for tool in ENGINES:
                yield from _checked(tool, table.get(tool))
    manager = told.get("packageManager")
    if isinstance(manager, str):
        tool, _, version = manager.partition("@")
        if NAME.match(tool):
            yield from _checked(tool, version.partition("+")[0])


def _virtual(data: bytes) -> Told:
    """`pyvenv.cfg`: the Python that a virtual environment stands on."""
    told = {key: value.decode("utf-8", "replace") for key, value in SETTING.findall(data)}
    found = told.get(b"executable") or told.get(b"home")
    if found:
        yield BASE, found


def _checked(tool: str, version: object) -> Told:
    if isinstance(version, str) and VERSION.match(version):
        yield tool, version.removeprefix("v") if version[1:2].isdigit() else version


READERS: dict[bytes, Callable[[bytes], Told]] = {
    b".python-version": _one("python"),
    b".nvmrc": _one("node"),
    b".node-version": _one("node"),
    b".ruby-version": _one("ruby"),
    b".java-version": _one("java"),
    b".go-version": _one("go"),
    b".terraform-version": _one("terraform"),
    b".tool-versions": _table,
    b"rust-toolchain": _rust,
    b"rust-toolchain.toml": _rust,
    b"go.mod": _go,
    b"package.json": _node,
    b"pyvenv.cfg": _virtual,
}
