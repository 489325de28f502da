"""Read versions of interpreters and toolchains that an environment requires, from its files; no tool is run.

Each tool has its own file for the version, and some files are for several tools. The key is the tool, not the
file, so moving from one file to another shows as the same tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from git_envhist.model import EnvPath, Fact
from git_envhist.probes import VERSION_FILES, engines, libraries
from git_envhist.probes.base import Files, Keyed

PROBE = "tools"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,40}\Z")
VERSION = re.compile(r"[0-9A-Za-z^~<>=|.*+/ -]{1,80}\Z")
ALIASES = {"nodejs": "node", "golang": "go", "java": "java"}
"""Names in `.tool-versions` -> names elsewhere."""
ENGINES = engines()
GO = re.compile(rb"^(go|toolchain)[ \t]+(?:go)?(\S+)[ \t\r]*(?://.*)?$", re.MULTILINE)
CHANNEL = re.compile(rb"^[ \t]*channel[ \t]*=[ \t]*[\"']([^\"'\n]{1,80})[\"']", re.MULTILINE)
SETTING = re.compile(rb"^[ \t]*(home|executable)[ \t]*=[ \t]*(\S.{0,1000}?)[ \t\r]*$", re.MULTILINE)
BASE = "base-python"
MAX_LENGTH = 1 << 16

ToolVersions = Iterator[tuple[str, str]]
"""(tool, version) as written in the file."""


def wants(directory: bytes) -> bool:
    # Files inside packages are not requirements of the environment.
    return (libraries() | {b"_vendor", b"vendor"}).isdisjoint(directory.split(b"/"))


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the versions in the files of one directory."""
    place = directory.decode("utf-8", "surrogateescape")
    for name, file in files.items():
        read = READERS.get(name)
        if read is None or file.data is None:
            continue
        for tool, version in read(file.data if name == b"package.json" else file.data[:MAX_LENGTH]):
            key = f"{place}/{tool}" if place else tool
            yield Fact(PROBE, key, version, EnvPath(directory), by=name.decode("ascii"))


def _one(tool: str) -> Callable[[bytes], ToolVersions]:
    """Return a reader for files with one version per line."""

    def read(data: bytes) -> ToolVersions:
        for line in data.decode("utf-8", "replace").splitlines():
            yield from _checked(tool, line.partition("#")[0].strip())

    return read


def _table(data: bytes) -> ToolVersions:
    """Yield the entries of `.tool-versions`: a tool and its versions per line."""
    for line in data.decode("utf-8", "replace").splitlines():
        tool, *versions = line.partition("#")[0].split() or [""]
        if versions and NAME.match(tool):
            yield from _checked(ALIASES.get(tool, tool), versions[0])


def _go(data: bytes) -> ToolVersions:
    for word, version in GO.findall(data):
        tool = "go" if word == b"go" else "go-toolchain"
        yield from _checked(tool, version.decode("utf-8", "replace"))


def _rust(data: bytes) -> ToolVersions:
    """Yield the version in `rust-toolchain`, which is a table or just a name."""
    found = CHANNEL.search(data)
    if found is not None:
        yield from _checked("rust", found[1].decode("utf-8", "replace"))
    elif b"[" not in data:
        yield from _one("rust")(data)


def _node(data: bytes) -> ToolVersions:
    """Yield `engines`, `volta` and the package manager of `package.json`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    for table in (value.get("engines"), value.get("volta")):
        if isinstance(table, dict):
            for tool in ENGINES:
                yield from _checked(tool, table.get(tool))
    manager = value.get("packageManager")
    if isinstance(manager, str):
        tool, _, version = manager.partition("@")
        if NAME.match(tool):
            yield from _checked(tool, version.partition("+")[0])


def _virtual(data: bytes) -> ToolVersions:
    """Yield the Python that a virtual environment uses, from `pyvenv.cfg`."""
    value = {key: value.decode("utf-8", "replace") for key, value in SETTING.findall(data)}
    found = value.get(b"executable") or value.get(b"home")
    if found:
        yield BASE, found


def _checked(tool: str, version: object) -> ToolVersions:
    if isinstance(version, str) and VERSION.match(version):
        yield tool, version.removeprefix("v") if version[1:2].isdigit() else version


READERS: dict[bytes, Callable[[bytes], ToolVersions]] = {
    **{name: _one(tool) for name, tool in VERSION_FILES},
    b".java-version": _one("java"),
    b".terraform-version": _one("terraform"),
    b".tool-versions": _table,
    b"rust-toolchain": _rust,
    b"rust-toolchain.toml": _rust,
    b"go.mod": _go,
    b"package.json": _node,
    b"pyvenv.cfg": _virtual,
}
