"""Read Node packages: installed ones in `node_modules`, Yarn's `.pnp` lists, manifests and lock files.

The name of an installed package is that of its directory, which is what programs import. pnpm stores each
package once in `node_modules/.pnpm/<name>@<version>` and links to it, Yarn may do so in
`node_modules/.store`; these count as packages of that `node_modules`. The functions for manifests and lock
files are used by the probe `requirements`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.fact_keys import text_of

# Yarn's `.pnp.cjs`: a program that contains the list of installed packages.
# The list has the references of each package (`npm:4.17.21`) and its dependencies. Dependencies of a
# workspace count as requested.

TEXT = re.compile(
    r"(?:RAW_RUNTIME_STATE\s*=\s*|hydrateRuntimeState\(JSON\.parse\()'((?:[^'\\]+|\\.)*+)'", re.DOTALL
)
CALL = re.compile(r"hydrateRuntimeState\(\s*(?=\{)")
"""Yarn 2 writes an object literal, with a trailing comma in long lists."""
LAST_COMMA = re.compile(r",(?=\s*[}\]])")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
VERSION = re.compile(r"(?:^|#)npm:([0-9][0-9A-Za-z.+-]{0,100})(?:::|\Z)")

Package = tuple[str, str, bool]
"""Name, version, whether it is an indirect dependency."""


def read_list(data: bytes) -> Iterator[Package]:
    """Yield the packages of a list; nothing if the format is unknown."""
    registry = read_object(_json_of(data.decode("utf-8", "replace"))).get("packageRegistryData")
    packages = list(_packages(registry))
    asked = {pair for _, reference, about in packages if _is_own(reference) for pair in _dependencies(about)}
    for name, reference, _ in packages:
        found = VERSION.search(reference)
        if found is not None and not _is_own(reference):
            yield name, found[1], (name, reference) not in asked


def read_object(data: bytes | str) -> dict[str, Any]:
    """Return a JSON object; empty if there is none."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        # In older files program code follows the object.
        value = json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _json_of(text: str) -> str:
    found = TEXT.search(text)
    if found is not None:
        # A backslash at the end of a line continues the string; elsewhere it escapes one character.
        return ESCAPED.sub(lambda escaped: "" if escaped[1] == "\n" else escaped[1], found[1])
    called = CALL.search(text)
    return LAST_COMMA.sub("", text[called.end() :]) if called is not None else text


def _packages(registry: object) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, found in _pairs(registry):
        for reference, about in _pairs(found):
            if isinstance(about, dict):
                yield name or "", reference or "", about


def _dependencies(about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, reference in _pairs(about.get("packageDependencies")):
        # An aliased package is written as a pair.
        pair = [name, reference] if isinstance(reference, str) else reference
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(word, str) for word in pair):
            yield pair[0], pair[1]


def _pairs(value: object) -> Iterator[tuple[str | None, Any]]:
    for pair in value if isinstance(value, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and (pair[0] is None or isinstance(pair[0], str)):
            yield pair[0], pair[1]


def _is_own(reference: str) -> bool:
    """Return whether it is a package of the project itself."""
    return not reference or reference.startswith("workspace:")


# Installed packages.

PROBE = "npm"
PACKAGE = re.compile(rb"(?:^|/)node_modules/((?:@[^/@][^/]*/)?[^/.@][^/]*)\Z")
VIRTUAL = re.compile(rb"(^|/)node_modules/\.(?:pnpm|store)/[^/]+/node_modules/((?:@[^/]+/)?[^/]+)\Z")
STORED = re.compile(rb"(^|/)node_modules/\.store/[^/]+/package\Z")
LISTS = (b".pnp.cjs", b".pnp.js", b".pnp.data.json")
PACKAGE_NAME = re.compile(r"(?:@[A-Za-z0-9._-]{1,100}/)?[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\Z")
PACKAGE_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~-]{0,100}\Z")


def wants(directory: bytes) -> bool:
    # Outside of node_modules every directory is looked at: Yarn's list is next to the `package.json` of a project.
    return b"node_modules" not in directory or PACKAGE.search(directory) is not None or _is_stored(directory)


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the package of a directory, or those of a list."""
    if b"package.json" in files and (PACKAGE.search(directory) is not None or _is_stored(directory)):
        yield from _package(directory, files[b"package.json"].data or b"")
    for name in LISTS:
        if name in files:
            yield from _listed(directory, name, files[name].data or b"")


def _package(directory: bytes, data: bytes) -> Iterator[Fact]:
    value = read_object(data)
    version, name = value.get("version"), value.get("name")
    if isinstance(version, str) and PACKAGE_VERSION.match(version):
        key = VIRTUAL.sub(rb"\1node_modules/\2", directory)
        if _is_stored(directory):
            if not (isinstance(name, str) and PACKAGE_NAME.match(name)):
                return
            key = STORED.sub(rb"\1node_modules/", directory) + name.encode("ascii")
        yield Fact(PROBE, text_of(key), version, EnvPath(directory))


def _listed(directory: bytes, name: bytes, data: bytes) -> Iterator[Fact]:
    place = directory + b"/" + name if directory else name
    for package, version, auto in read_list(data):
        if PACKAGE_NAME.match(package) and PACKAGE_VERSION.match(version):
            yield Fact(PROBE, f"{text_of(place)}/{package}", version, EnvPath(directory), auto=auto)


def _is_stored(directory: bytes) -> bool:
    return STORED.search(directory) is not None


OPEN = ("?", "open=")
LIST, LOCK = (".", "list"), (".", "lock")
NAME = re.compile(r"(?:@[^/@\s]{1,100}/)?[^/@\s.][^/@\s]{0,213}\Z")
SPEC = re.compile(r"[0-9A-Za-z .^~<>=|*+-]{0,100}\Z")
ALIAS = re.compile(r"[a-z]+:|.*/")
OPTIONAL_PARTS = ("devDependencies", "optionalDependencies", "peerDependencies")
REQUIRED_PARTS = ("dependencies", "optionalDependencies")
PEERS = "peerDependencies"
PNPM = re.compile(
    rb"^  '?/?((?:@[^/@\s']+/)?[^/@\s']+)[@/]([0-9][0-9A-Za-z.+-]*)(?:[(_][^\n]*?)?'?:", re.MULTILINE
)
PNPM_PART = re.compile(rb"^packages:[ \t]*\r?\n((?:[ \t][^\n]*\n|\r?\n)*)", re.MULTILINE)
YARN_HEAD = re.compile(rb'"?((?:@[^/@\s"]+/)?[^/@\s"#]+)@')
YARN_VERSION = re.compile(rb'[ \t]+version:?[ \t]+"?([0-9][0-9A-Za-z.+-]*)"?')

Lines = Iterator[tuple[str, str]]


def read_manifest(data: bytes) -> Lines:
    """Yield the dependencies in a package.json."""
    value = _object(data)
    if value is None:
        yield OPEN
        return
    yield LIST
    for name, asked in _named(value, "dependencies"):
        plain = isinstance(asked, str) and SPEC.match(asked) and not ALIAS.match(asked)
        yield name, f"asked={asked}" if plain else "maybe="
    for part in OPTIONAL_PARTS:
        yield from ((name, "maybe=") for name, _ in _named(value, part))


def read_npm_lock(data: bytes) -> Lines:
    """Yield the locked versions of npm by installation path."""
    value = _object(data)
    if value is None:
        yield OPEN
        return
    yield LOCK
    packages = _table(value, "packages")
    yield from _by_path(packages) if packages else _nested(_table(value, "dependencies"), "")


def _by_path(packages: dict[str, Any]) -> Lines:
    for path, about in packages.items():
        version = about.get("version") if isinstance(about, dict) else None
        if "node_modules/" in path and isinstance(version, str) and PACKAGE_VERSION.match(version):
            yield path, f"locked={version}"


def _nested(packages: dict[str, Any], above: str) -> Lines:
    """Yield the locked versions of npm before version 7: nested by the package that needs them."""
    waiting = [(above, packages)]
    while waiting:
        place, nested = waiting.pop()
        for name, about in nested.items():
            if not (isinstance(about, dict) and NAME.match(name)):
                continue
            path = f"{place}node_modules/{name}"
            version = about.get("version")
            if isinstance(version, str) and PACKAGE_VERSION.match(version):
                yield path, f"locked={version}"
            waiting.append((f"{path}/", _table(about, "dependencies")))


def read_roots(data: bytes) -> Lines:
    """Yield the installed packages that no other package needs."""
    packages = _table(_object(data) or {}, "packages")
    value = [(_name_at(path), about) for path, about in packages.items() if isinstance(about, dict)]
    plain: dict[str, set[str]] = {}
    for name, about in value:
        plain.setdefault(name, set()).update(
            needed for part in REQUIRED_PARTS for needed in _table(about, part)
        )
    needed = {name for names in plain.values() for name in names}
    for name, about in value:
        # A part of a package may declare the whole as its peer; then it does not count as needing it.
        needed.update(peer for peer in _table(about, PEERS) if name not in _reached(peer, plain))
    for path in packages:
        name = path.removeprefix("node_modules/")
        if name != path and NAME.match(name) and name not in needed:
            yield name, "root="


def _reached(start: str, needs: dict[str, set[str]]) -> set[str]:
    """Return all direct and indirect dependencies of a package."""
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
    """Yield the locked versions of pnpm."""
    part = PNPM_PART.search(data)
    yield LOCK
    for name, version in PNPM.findall(part[1] if part else b""):
        yield _text(name), "locked=" + version.decode("ascii")


def read_yarn_lock(data: bytes) -> Lines:
    """Yield the locked versions of Yarn, in either format."""
    yield LOCK
    head = None
    for line in data.splitlines():
        if not line.startswith((b" ", b"\t")):
            head = YARN_HEAD.match(line)
        elif head is not None and (found := YARN_VERSION.match(line)) is not None:
            yield _text(head[1]), "locked=" + found[1].decode("ascii")
            head = None


def _named(value: dict[str, Any], part: str) -> Iterator[tuple[str, object]]:
    return ((name, asked) for name, asked in _table(value, part).items() if NAME.match(name))


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _table(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
