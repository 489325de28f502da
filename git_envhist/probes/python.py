"""Read Python packages: installed ones, requirements files, manifests and lock files of pip, uv, Poetry,
Pipenv.

Package names are normalised as indexes compare them (`psycopg2-binary`). The functions for lists are used by
the probe `requirements`; entries that cannot be read for certain are only named, and a list that asks for
something unknown is marked as open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.toml_text import read_toml

# Installed packages and the interpreter of each virtual environment.
# pip writes a file `REQUESTED` for requested packages only; uv writes one for every package.

PROBE = "pip"
METADATA_HEAD_SIZE = 1 << 16
"""The fields of a package come first; the description may be long."""
SITE = re.compile(rb"(?:^|/)(?:lib(?:64|32)?/(?:python|pypy)[^/]*|Lib)/(?:site|dist)-packages\Z")
SITE_NAMES = (b"site-packages", b"dist-packages")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
VERSION = re.compile(r"[A-Za-z0-9!+._*-]{1,80}\Z")
# In such names other characters are replaced by `_`.
EGG_DIRECTORY = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._]{0,100})-([0-9][A-Za-z0-9!+._]{0,80})-py[0-9.]+(?:-[^/]{1,80})?\.egg\Z"
)
SEPARATORS = re.compile(r"[-_.]+")
PIP = b"pip"
SETTING = re.compile(
    rb"^[ \t]*version(?:_info)?[ \t]*=[ \t]*([0-9][0-9A-Za-z.+]{0,40})[ \t\r]*$", re.MULTILINE
)


def wants(directory: bytes) -> bool:
    # Packages vendored inside setuptools and pip are not installed packages.
    return b"_vendor" not in directory.split(b"/")


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the packages of a metadata or site directory, and the interpreter of a virtual environment."""
    parent, _, name = directory.rpartition(b"/")
    if b"pyvenv.cfg" in files:
        yield from _interpreter(directory, files[b"pyvenv.cfg"].data or b"")
    if name.endswith(b".dist-info"):
        yield from _package(parent, directory, files, b"METADATA")
    elif name.endswith(b".egg-info") and parent.endswith(SITE_NAMES):
        yield from _package(parent, directory, files, b"PKG-INFO")
    elif name == b"EGG-INFO" and parent.endswith(b".egg"):
        yield from _package(parent.rpartition(b"/")[0], directory, files, b"PKG-INFO")
    elif name in SITE_NAMES:
        yield from _single_files(directory, files)


def _package(site: bytes, directory: bytes, files: Files, name: bytes) -> Iterator[Fact]:
    file = files.get(name)
    value = _fields(file.data or b"") if file is not None else None
    if value is None:
        return
    package, version = value
    installer = files[b"INSTALLER"].data if b"INSTALLER" in files else None
    spec_text = b"REQUESTED" in files or (installer or b"").strip() != PIP
    editable = " (editable)" if _is_editable(files) else ""
    yield Fact(PROBE, _key(site, package), version + editable, EnvPath(directory), auto=not spec_text)


def _single_files(site: bytes, files: Files) -> Iterator[Fact]:
    """Yield packages in the formats of older installers: a file with the fields, an archive, or a link to the
    source."""
    for name, file in files.items():
        if name.endswith(b".egg-info"):
            value = _fields(file.data or b"")
            if value is not None:
                yield Fact(PROBE, _key(site, value[0]), value[1], EnvPath(site))
        elif name.endswith(b".egg") and (archive := EGG_DIRECTORY.match(name.decode("utf-8", "replace"))):
            yield Fact(PROBE, _key(site, archive[1]), archive[2], EnvPath(site))
        elif name.endswith(b".egg-link"):
            package = name.removesuffix(b".egg-link").decode("utf-8", "replace")
            if NAME.match(package):
                yield Fact(PROBE, _key(site, package), "(editable)", EnvPath(site))


def _interpreter(directory: bytes, settings: bytes) -> Iterable[Fact]:
    found = SETTING.search(settings[:METADATA_HEAD_SIZE])
    if found is None:
        return ()
    return (Fact(PROBE, _join(directory, "python"), found[1].decode("ascii"), EnvPath(directory)),)


def _fields(data: bytes) -> tuple[str, str] | None:
    """Return name and version; None if either is missing."""
    fields: dict[bytes, str] = {}
    for line in data[:METADATA_HEAD_SIZE].replace(b"\r\n", b"\n").split(b"\n"):
        if not line:
            break
        word, colon, value = line.partition(b":")
        if colon and word in (b"Name", b"Version"):
            fields.setdefault(word, value.strip().decode("utf-8", "replace"))
    name, version = fields.get(b"Name", ""), fields.get(b"Version", "")
    return (name, version) if NAME.match(name) and VERSION.match(version) else None


def _is_editable(files: Files) -> bool:
    file = files.get(b"direct_url.json")
    if file is None or not file.data:
        return False
    try:
        value = json.loads(file.data)
    except (ValueError, RecursionError):
        return False
    about = value.get("dir_info") if isinstance(value, dict) else None
    return isinstance(about, dict) and about.get("editable") is True


def _key(site: bytes, package: str) -> str:
    """Return the key of a package, `.venv/flask`: the virtual environment (or the site directory), and the name."""
    return _join(SITE.sub(b"", site), SEPARATORS.sub("-", package).lower())


def _join(directory: bytes, name: str) -> str:
    place = directory.decode("utf-8", "surrogateescape")
    return f"{place}/{name}" if place else name


OPEN = ("?", "open=")
LIST, LOCK = (".", "list"), (".", "lock")
REQUIREMENT = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)[ \t]*(\[[^\]]*\])?[ \t]*(.*)\Z", re.DOTALL
)
BOUND = r"(?:===|==|~=|!=|<=|>=|<|>)[ \t]*[A-Za-z0-9!+._*-]+"
BOUNDS = re.compile(rf"{BOUND}(?:[ \t]*,[ \t]*{BOUND})*\Z")
OPTION = re.compile(r"(--?[a-zA-Z][a-z-]*)(?:[ \t]*=[ \t]*|[ \t]+|(?<=-[a-z]))?(\S*)")
EGG = re.compile(r"#(?:.*&)?egg=([A-Za-z0-9][A-Za-z0-9._-]*)")
REQUIRES_DIST = re.compile(rb"^Requires-Dist:[ \t]*([A-Za-z0-9][A-Za-z0-9._-]*)([^\n]*)", re.MULTILINE)
OF_EXTRA = re.compile(rb";.*\bextra[ \t]*(?:==|===|in\b|!=)")
"""Matches the rest of a requirement that only applies to an extra."""
ASKED_PIP = b"pip"
"""The installer that writes `REQUESTED` only for requested packages."""
METADATA_NAME = re.compile(rb"^Name:[ \t]*([A-Za-z0-9][A-Za-z0-9._-]*)[ \t]*$", re.MULTILINE)
LOCKED = re.compile(
    rb'^\[\[package\]\]\r?\nname = "([^"\n]{1,100})"\r?\nversion = "([^"\n]{1,80})"', re.MULTILINE
)
HEAD_SIZE = 1 << 18
Lines = Iterator[tuple[str, str]]


def is_requirements(directory: bytes, name: bytes) -> bool:
    """Return whether a file is a requirements list: `requirements-dev.txt`, `requirements/dev.txt`."""
    if directory.rpartition(b"/")[2] == b"requirements":
        return name.endswith((b".txt", b".in"))
    return name.endswith(b"requirements.txt") or (
        name.startswith(b"requirements") and name.endswith((b".txt", b".in"))
    )


def read_nothing(data: bytes) -> Lines:
    """Yield "open": only a program could evaluate the file."""
    yield OPEN


def read_requirements(data: bytes) -> Lines:
    """Yield the entries of a requirements file."""
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
        yield parse_requirement(re.split(r"[ \t]--", line)[0])


def _option(line: str, whole: str) -> Lines:
    found = OPTION.match(line)
    word, value = (found[1], found[2]) if found else ("", "")
    if word in ("-e", "--editable"):
        # Usually the project itself; a package from elsewhere is named in the URL.
        if "://" in line:
            yield from _unnamed(whole)
    elif word in ("-r", "--requirement") and not _is_also_read(value):
        yield OPEN


def _is_also_read(path: str) -> bool:
    """Return whether the probe reads an included file anyway, as one of the requirement files below this directory."""
    directory, _, name = path.encode("utf-8", "replace").rpartition(b"/")
    return not path.startswith(("/", "..")) and is_requirements(directory or b".", name)


def _unnamed(line: str) -> Lines:
    found = EGG.search(line)
    yield (_normal(found[1]), "maybe=") if found else OPEN


def parse_requirement(text: str) -> tuple[str, str]:
    """Return name and value of a requirement like `flask>=3; python_version<"3.12"`."""
    found = REQUIREMENT.match(text.strip())
    if found is None:
        return OPEN
    spec_text = found[3].strip()
    if spec_text.startswith("(") and spec_text.endswith(")"):
        spec_text = spec_text[1:-1].strip()
    if spec_text and not BOUNDS.match(spec_text):
        return _normal(found[1]), "maybe="
    return _normal(found[1]), "asked=" + re.sub(r"[ \t]", "", spec_text)


def read_pyproject(data: bytes) -> Lines:
    """Yield the project's dependencies; those of extras and groups by name only."""
    value = _toml(data)
    if value is None:
        yield OPEN
        return
    project, tools = _table(value, "project"), _table(value, "tool")
    poetry = _table(tools, "poetry")
    if not project and not poetry:
        return
    yield LIST
    yield from _only_names(
        _normal(name) for name in (project.get("name"), poetry.get("name")) if _is_name(name)
    )
    if "dependencies" in _items(project.get("dynamic")):
        yield OPEN
    yield from (parse_requirement(text) for text in _texts(project.get("dependencies")))
    groups = [
        *_table(project, "optional-dependencies").values(),
        *_table(value, "dependency-groups").values(),
    ]
    groups.append(_table(tools, "uv").get("dev-dependencies"))
    yield from _only_names(parse_requirement(text)[0] for group in groups for text in _texts(group))
    yield from _poetry_names(poetry)


def _poetry_names(poetry: dict[str, Any]) -> Lines:
    names = [*_table(poetry, "dependencies"), *_table(poetry, "dev-dependencies")]
    for group in _table(poetry, "group").values():
        names += _table(group if isinstance(group, dict) else {}, "dependencies")
    yield from _only_names(_normal(name) for name in names if _is_name(name) and name != "python")


def read_pipfile(data: bytes) -> Lines:
    """Yield the entries of a Pipfile."""
    value = _toml(data)
    if value is None:
        yield OPEN
        return
    yield LIST
    for name, spec_text in _table(value, "packages").items():
        if _is_name(name):
            spec = "" if spec_text == "*" else spec_text
            yield parse_requirement(f"{name}{spec}") if isinstance(spec, str) else (_normal(name), "maybe=")
    yield from _only_names(_normal(name) for name in _table(value, "dev-packages") if _is_name(name))


def read_pipfile_lock(data: bytes) -> Lines:
    """Yield the locked versions of Pipenv."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        yield OPEN
        return
    yield LOCK
    for part in ("default", "develop"):
        for name, about in _table(value if isinstance(value, dict) else {}, part).items():
            version = about.get("version") if isinstance(about, dict) else None
            if not _is_name(name):
                continue
            if isinstance(version, str) and version.startswith("==") and VERSION.match(version[2:]):
                yield _normal(name), "locked=" + version[2:]
            else:
                yield _normal(name), "maybe="


def read_packages_lock(data: bytes) -> Lines:
    """Yield the locked versions of uv or Poetry: `[[package]]` with name and version in this order."""
    found = [
        (name.decode("utf-8", "replace"), version.decode("utf-8", "replace"))
        for name, version in LOCKED.findall(data)
    ]
    # An entry of another form (a local project without version) is unknown.
    if len(found) != len(re.findall(rb"^\[\[package\]\]", data, re.MULTILINE)):
        yield OPEN
    yield LOCK
    yield from (
        (_normal(name), "locked=" + version)
        for name, version in found
        if _is_name(name) and VERSION.match(version)
    )


def read_setup_settings(data: bytes) -> Lines:
    """Yield "open" if a setup.cfg describes a project; one that only configures tools asks for nothing."""
    if re.search(rb"^(?:install_requires|name)[ \t]*=", data, re.MULTILINE):
        yield OPEN


def read_metadata(directory: bytes, data: bytes, *, is_requested: bool = False) -> Lines:
    """Yield the packages that an installed one and its extras need, and whether it was requested."""
    head = data[:HEAD_SIZE].replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    found = METADATA_NAME.search(head)
    if found is not None:
        place = SITE.sub(b"", directory.rpartition(b"/")[0]).decode("utf-8", "surrogateescape")
        name = _normal(found[1].decode("ascii"))
        needed: dict[bool, set[str]] = {False: set(), True: set()}
        for other, rest in REQUIRES_DIST.findall(head):
            needed[OF_EXTRA.search(rest) is not None].add(_normal(other.decode("ascii")))
        key = f"{place}/{name}" if place else name
        yield key, "needs=" + ",".join(sorted(needed[False]))
        if needed[True] - needed[False]:
            yield key, "extra=" + ",".join(sorted(needed[True] - needed[False]))
        if is_requested:
            yield key, "requested="


def is_requested(installer: bytes | None, *, is_marked: bool) -> bool:
    """Return whether a package was requested from pip; other installers mark every package."""
    return is_marked and (installer or b"").strip() == ASKED_PIP


def _only_names(names: Iterable[str]) -> Lines:
    return ((name, "maybe=") for name in names if name != OPEN[0])


def _toml(data: bytes) -> dict[str, Any] | None:
    try:
        return read_toml(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def _table(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [item for item in _items(value) if isinstance(item, str)]


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and NAME.match(value) is not None


def _normal(name: str) -> str:
    return SEPARATORS.sub("-", name).lower()
