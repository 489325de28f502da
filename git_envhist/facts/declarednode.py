"""Lists of Node packages: package.json, and the lock files of npm, pnpm and Yarn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from git_envhist.facts.node import VERSION

OPEN = ("?", "open=")
LIST, LOCK = (".", "list"), (".", "lock")
NAME = re.compile(r"(?:@[^/@\s]{1,100}/)?[^/@\s.][^/@\s]{0,213}\Z")
SPEC = re.compile(r"[0-9A-Za-z .^~<>=|*+-]{0,100}\Z")
ALIAS = re.compile(r"[a-z]+:|.*/")
MAYBE = ("devDependencies", "optionalDependencies", "peerDependencies")
NEEDED = ("dependencies", "optionalDependencies")
PEERS = "peerDependencies"
PNPM = re.compile(
    rb"^  '?/?((?:@[^/@\s']+/)?[^/@\s']+)[@/]([0-9][0-9A-Za-z.+-]*)(?:[(_][^\n]*?)?'?:", re.MULTILINE
)
PNPM_PART = re.compile(rb"^packages:[ \t]*\r?\n((?:[ \t][^\n]*\n|\r?\n)*)", re.MULTILINE)
YARN_HEAD = re.compile(rb'"?((?:@[^/@\s"]+/)?[^/@\s"#]+)@')
YARN_VERSION = re.compile(rb'[ \t]+version:?[ \t]+"?([0-9][0-9A-Za-z.+-]*)"?')

Lines = Iterator[tuple[str, str]]


def read_manifest(data: bytes) -> Lines:
    """What a package.json asks for."""
    told = _object(data)
    if told is None:
        yield OPEN
        return
    yield LIST
    for name, asked in _named(told, "dependencies"):
        plain = isinstance(asked, str) and SPEC.match(asked) and not ALIAS.match(asked)
        yield name, f"asked={asked}" if plain else "maybe="
    for part in MAYBE:
        yield from ((name, "maybe=") for name, _ in _named(told, part))


def read_npm_lock(data: bytes) -> Lines:
    """The versions that npm settled, by the paths where it puts them."""
    told = _object(data)
    if told is None:
        yield OPEN
        return
    yield LOCK
    packages = _table(told, "packages")
    yield from _by_path(packages) if packages else _nested(_table(told, "dependencies"), "")


def _by_path(packages: dict[str, Any]) -> Lines:
    for path, about in packages.items():
        version = about.get("version") if isinstance(about, dict) else None
        if "node_modules/" in path and isinstance(version, str) and VERSION.match(version):
            yield path, f"locked={version}"


def _nested(packages: dict[str, Any], above: str) -> Lines:
    """As npm wrote it before its seventh version: each package below the one that has it to itself."""
    waiting = [(above, packages)]
    while waiting:
        place, here = waiting.pop()
        for name, about in here.items():
            if not (isinstance(about, dict) and NAME.match(name)):
                continue
            path = f"{place}node_modules/{name}"
            version = about.get("version")
            if isinstance(version, str) and VERSION.match(version):
                yield path, f"locked={version}"
            waiting.append((f"{path}/", _table(about, "dependencies")))


def read_roots(data: bytes) -> Lines:
    """Of what npm installed, the packages that no other one needs."""
    packages = _table(_object(data) or {}, "packages")
    told = [(_name_at(path), about) for path, about in packages.items() if isinstance(about, dict)]
    plain: dict[str, set[str]] = {}
    for name, about in told:
        plain.setdefault(name, set()).update(needed for part in NEEDED for needed in _table(about, part))
    needed = {name for names in plain.values() for name in names}
    for name, about in told:
        # A part of a package may name the whole as its peer: what brought it along is no stranger to it.
        needed.update(peer for peer in _table(about, PEERS) if name not in _reached(peer, plain))
    for path in packages:
        name = path.removeprefix("node_modules/")
        if name != path and NAME.match(name) and name not in needed:
            yield name, "root="


def _reached(start: str, needs: dict[str, set[str]]) -> set[str]:
    """Whatever a package needs, and what that needs in turn."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for name in needs.get(waiting.pop(), set()) - reached:
            reached.add(name)
            waiting.append(name)
    return reached


def _name_at(path: str) -> str:
    return path.rpartition("node_modules/")[2]


def read_pnpm_lock(data: bytes) -> Lines:
    """The versions that pnpm settled."""
    part = PNPM_PART.search(data)
    yield LOCK
    for name, version in PNPM.findall(part[1] if part else b""):
        yield _text(name), "locked=" + version.decode("ascii")


def read_yarn_lock(data: bytes) -> Lines:
    """The versions that Yarn settled, of either of its formats."""
    yield LOCK
    head = None
    for line in data.splitlines():
        if not line.startswith((b" ", b"\t")):
            head = YARN_HEAD.match(line)
        elif head is not None and (found := YARN_VERSION.match(line)) is not None:
            yield _text(head[1]), "locked=" + found[1].decode("ascii")
            head = None


def _named(told: dict[str, Any], part: str) -> Iterator[tuple[str, object]]:
    return ((name, asked) for name, asked in _table(told, part).items() if NAME.match(name))


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _table(told: dict[str, Any], key: str) -> dict[str, Any]:
    found = told.get(key)
    return found if isinstance(found, dict) else {}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
