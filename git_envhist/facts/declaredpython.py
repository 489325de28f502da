"""Lists of Python packages: requirements files, pyproject.toml, Pipfile, and the lock files of uv, Poetry and Pipenv.

Names are as indexes compare them. What cannot be read for sure is named without saying more, and where a list asks for
something without a name, or for another list that is not known here, it says that it is open.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from git_envhist.facts.python import NAME, SEPARATORS, SITE, VERSION

OPEN = ("?", "open=")
LIST, LOCK = (".", "list"), (".", "lock")
NAMED = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)[ \t]*(\[[^\]]*\])?[ \t]*(.*)\Z", re.DOTALL)
BOUND = r"(?:===|==|~=|!=|<=|>=|<|>)[ \t]*[A-Za-z0-9!+._*-]+"
BOUNDS = re.compile(rf"{BOUND}(?:[ \t]*,[ \t]*{BOUND})*\Z")
OPTION = re.compile(r"(--?[a-zA-Z][a-z-]*)(?:[ \t]*=[ \t]*|[ \t]+|(?<=-[a-z]))?(\S*)")
EGG = re.compile(r"#(?:.*&)?egg=([A-Za-z0-9][A-Za-z0-9._-]*)")
NEEDS = re.compile(rb"^Requires-Dist:[ \t]*([A-Za-z0-9][A-Za-z0-9._-]*)([^\n]*)", re.MULTILINE)
OF_EXTRA = re.compile(rb";.*\bextra[ \t]*(?:==|===|in\b|!=)")
"""The end of a line that speaks of a package needed for an extra only."""
ASKED_PIP = b"pip"
"""The installer that writes `REQUESTED` for nothing but the packages it was asked for."""
CALLED = re.compile(rb"^Name:[ \t]*([A-Za-z0-9][A-Za-z0-9._-]*)[ \t]*$", re.MULTILINE)
LOCKED = re.compile(
    rb'^\[\[package\]\]\r?\nname = "([^"\n]{1,100})"\r?\nversion = "([^"\n]{1,80})"', re.MULTILINE
)
HEAD_SIZE = 1 << 18
Lines = Iterator[tuple[str, str]]


def is_requirements(directory: bytes, name: bytes) -> bool:
    """Whether a file is a list as pip reads them: `requirements-dev.txt`, `requirements/dev.txt`."""
    if directory.rpartition(b"/")[2] == b"requirements":
        return name.endswith((b".txt", b".in"))
    return name.endswith(b"requirements.txt") or (
        name.startswith(b"requirements") and name.endswith((b".txt", b".in"))
    )


def read_nothing(data: bytes) -> Lines:
    """What only a program could tell."""
    yield OPEN


def read_requirements(data: bytes) -> Lines:
    """A file as `pip install -r` takes it."""
    yield LIST
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\\\n", " ")
    for line in text.split("\n"):
        stripped = re.sub(r"(?:^|[ \t])#.*", "", line).strip()
        if stripped:
            yield from _line(stripped, line)


def _line(line: str, whole: str) -> Lines:
    if line.startswith("-"):
        yield from _option(line, whole)
    elif "://" in line.partition("@")[0] or line.startswith((".", "/", "~")):
        yield from _unnamed(whole)
    else:
        yield requirement(re.split(r"[ \t]--", line)[0])


def _option(line: str, whole: str) -> Lines:
    found = OPTION.match(line)
    word, value = (found[1], found[2]) if found else ("", "")
    if word in ("-e", "--editable"):
        # The project itself, mostly; one from elsewhere has its name in the address.
        if "://" in line:
            yield from _unnamed(whole)
    elif word in ("-r", "--requirement") and not _is_beside(value):
        yield OPEN


def _is_beside(path: str) -> bool:
    """Whether another list is one that is read as well, in this directory or below it."""
    directory, _, name = path.encode("utf-8", "replace").rpartition(b"/")
    return not path.startswith(("/", "..")) and is_requirements(directory or b".", name)


def _unnamed(line: str) -> Lines:
    found = EGG.search(line)
    yield (_normal(found[1]), "maybe=") if found else OPEN


def requirement(text: str) -> tuple[str, str]:
    """`flask>=3; python_version<"3.12"` -> its name, and what is asked."""
    found = NAMED.match(text.strip())
    if found is None:
        return OPEN
    asked = found[3].strip()
    if asked.startswith("(") and asked.endswith(")"):
        asked = asked[1:-1].strip()
    if asked and not BOUNDS.match(asked):
        return _normal(found[1]), "maybe="
    return _normal(found[1]), "asked=" + re.sub(r"[ \t]", "", asked)


def read_pyproject(data: bytes) -> Lines:
    """The project's own dependencies; those of extras and groups by name."""
    told = _toml(data)
    if told is None:
        yield OPEN
        return
    project, tools = _table(told, "project"), _table(told, "tool")
    poetry = _table(tools, "poetry")
    if not project and not poetry:
        return
    yield LIST
    yield from _only_names(
        _normal(name) for name in (project.get("name"), poetry.get("name")) if _is_name(name)
    )
    if "dependencies" in _items(project.get("dynamic")):
        yield OPEN
    yield from (requirement(text) for text in _texts(project.get("dependencies")))
    groups = [*_table(project, "optional-dependencies").values(), *_table(told, "dependency-groups").values()]
    groups.append(_table(tools, "uv").get("dev-dependencies"))
    yield from _only_names(requirement(text)[0] for group in groups for text in _texts(group))
    yield from _of_poetry(poetry)


def _of_poetry(poetry: dict[str, Any]) -> Lines:
    names = [*_table(poetry, "dependencies"), *_table(poetry, "dev-dependencies")]
    for group in _table(poetry, "group").values():
        names += _table(group if isinstance(group, dict) else {}, "dependencies")
    yield from _only_names(_normal(name) for name in names if _is_name(name) and name != "python")


def read_pipfile(data: bytes) -> Lines:
    """Pipenv's list."""
    told = _toml(data)
    if told is None:
        yield OPEN
        return
    yield LIST
    for name, asked in _table(told, "packages").items():
        if _is_name(name):
            spec = "" if asked == "*" else asked
            yield requirement(f"{name}{spec}") if isinstance(spec, str) else (_normal(name), "maybe=")
    yield from _only_names(_normal(name) for name in _table(told, "dev-packages") if _is_name(name))


def read_pipfile_lock(data: bytes) -> Lines:
    """The versions that Pipenv settled."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        yield OPEN
        return
    yield LOCK
    for part in ("default", "develop"):
        for name, about in _table(told if isinstance(told, dict) else {}, part).items():
            version = about.get("version") if isinstance(about, dict) else None
            if not _is_name(name):
                continue
            if isinstance(version, str) and version.startswith("==") and VERSION.match(version[2:]):
                yield _normal(name), "locked=" + version[2:]
            else:
                yield _normal(name), "maybe="


def read_packages_lock(data: bytes) -> Lines:
    """The versions that uv or Poetry settled: `[[package]]`, name and version in this order."""
    found = [
        (name.decode("utf-8", "replace"), version.decode("utf-8", "replace"))
        for name, version in LOCKED.findall(data)
    ]
    # A package whose entry has another shape (a project of one's own, without version) is one that is not known.
    if len(found) != len(re.findall(rb"^\[\[package\]\]", data, re.MULTILINE)):
        yield OPEN
    yield LOCK
    yield from (
        (_normal(name), "locked=" + version)
        for name, version in found
        if _is_name(name) and VERSION.match(version)
    )


def read_setup_settings(data: bytes) -> Lines:
    """A setup.cfg that describes a project asks for more than is read here; one that configures tools for nothing."""
    if re.search(rb"^(?:install_requires|name)[ \t]*=", data, re.MULTILINE):
        yield OPEN


def read_metadata(directory: bytes, data: bytes, *, is_requested: bool = False) -> Lines:
    """Yield the packages that an installed one needs, those its extras need, and whether pip was asked for it."""
    head = data[:HEAD_SIZE].replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    found = CALLED.search(head)
    if found is not None:
        place = SITE.sub(b"", directory.rpartition(b"/")[0]).decode("utf-8", "surrogateescape")
        name = _normal(found[1].decode("ascii"))
        needed: dict[bool, set[str]] = {False: set(), True: set()}
        for other, rest in NEEDS.findall(head):
            needed[OF_EXTRA.search(rest) is not None].add(_normal(other.decode("ascii")))
        key = f"{place}/{name}" if place else name
        yield key, "needs=" + ",".join(sorted(needed[False]))
        if needed[True] - needed[False]:
            yield key, "extra=" + ",".join(sorted(needed[True] - needed[False]))
        if is_requested:
            yield key, "requested="


def is_requested(installer: bytes | None, *, is_marked: bool) -> bool:
    """Return whether pip was asked for a package; other installers mark every package."""
    return is_marked and (installer or b"").strip() == ASKED_PIP


def _only_names(names: Iterable[str]) -> Lines:
    return ((name, "maybe=") for name in names if name != OPEN[0])


def _toml(data: bytes) -> dict[str, Any] | None:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def _table(told: dict[str, Any], key: str) -> dict[str, Any]:
    found = told.get(key)
    return found if isinstance(found, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [item for item in _items(value) if isinstance(item, str)]


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and NAME.match(value) is not None


def _normal(name: str) -> str:
    return SEPARATORS.sub("-", name).lower()
