"""Python packages: what installers leave beside them wherever that is, and the interpreter of each environment.

Names are as people write them and as indexes compare them (`psycopg2-binary`, `jaraco-functools`). What pip was asked
for has a file `REQUESTED`; one of its own that has none came along with another. uv makes one for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from git_envhist.facts.probe import Files, Keyed
from git_envhist.model import EnvPath, Fact

PROBE = "pip"
HEAD_SIZE = 1 << 16
"""The fields of a package come first, its description may be long."""
SITE = re.compile(rb"(?:^|/)(?:lib(?:64|32)?/(?:python|pypy)[^/]*|Lib)/(?:site|dist)-packages\Z")
SITE_NAMES = (b"site-packages", b"dist-packages")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
VERSION = re.compile(r"[A-Za-z0-9!+._*-]{1,80}\Z")
# What is no letter of a version stands as `_` in such a name; what is no word of a name does, too.
EGG = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._]{0,100})-([0-9][A-Za-z0-9!+._]{0,80})-py[0-9.]+(?:-[^/]{1,80})?\.egg\Z"
)
SEPARATORS = re.compile(r"[-_.]+")
NOTES_WHAT_IS_ASKED = b"pip"
SETTING = re.compile(
    rb"^[ \t]*version(?:_info)?[ \t]*=[ \t]*([0-9][0-9A-Za-z.+]{0,40})[ \t\r]*$", re.MULTILINE
)


def wants(directory: bytes) -> bool:
    # What setuptools and pip carry within them is nobody's installation.
    return b"_vendor" not in directory.split(b"/")


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The package of a metadata directory, those told by single files, the interpreter of a virtual environment."""
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
    told = _fields(file.data or b"") if file is not None else None
    if told is None:
        return
    package, version = told
    installer = files[b"INSTALLER"].data if b"INSTALLER" in files else None
    asked = b"REQUESTED" in files or (installer or b"").strip() != NOTES_WHAT_IS_ASKED
    editable = " (editable)" if _is_editable(files) else ""
    yield Fact(PROBE, _key(site, package), version + editable, EnvPath(directory), auto=not asked)


def _single_files(site: bytes, files: Files) -> Iterator[Fact]:
    """What older installers leave: a file with the fields, an archive, or a link to where the source stands."""
    for name, file in files.items():
        if name.endswith(b".egg-info"):
            told = _fields(file.data or b"")
            if told is not None:
                yield Fact(PROBE, _key(site, told[0]), told[1], EnvPath(site))
        elif name.endswith(b".egg") and (archive := EGG.match(name.decode("utf-8", "replace"))):
            yield Fact(PROBE, _key(site, archive[1]), archive[2], EnvPath(site))
        elif name.endswith(b".egg-link"):
            package = name.removesuffix(b".egg-link").decode("utf-8", "replace")
            if NAME.match(package):
                yield Fact(PROBE, _key(site, package), "(editable)", EnvPath(site))


def _interpreter(directory: bytes, settings: bytes) -> Iterable[Fact]:
    found = SETTING.search(settings[:HEAD_SIZE])
    if found is None:
        return ()
    return (Fact(PROBE, _join(directory, "python"), found[1].decode("ascii"), EnvPath(directory)),)


def _fields(data: bytes) -> tuple[str, str] | None:
    """Name and version; None where either is not to be had."""
    fields: dict[bytes, str] = {}
    for line in data[:HEAD_SIZE].replace(b"\r\n", b"\n").split(b"\n"):
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
        told = json.loads(file.data)
    except (ValueError, RecursionError):
        return False
    about = told.get("dir_info") if isinstance(told, dict) else None
    return isinstance(about, dict) and about.get("editable") is True


def _key(site: bytes, package: str) -> str:
    """`.venv/flask`: the environment that a site directory belongs to, or else that directory, and the name."""
    return _join(SITE.sub(b"", site), SEPARATORS.sub("-", package).lower())


def _join(directory: bytes, name: str) -> str:
    place = directory.decode("utf-8", "surrogateescape")
    return f"{place}/{name}" if place else name
