"""Compare lock files with the installed packages of a merged environment.

A revert merges a lock file by keys or lines, and packages as units; both can be right and not belong together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.lazy import dataclass, field
from git_envhist.model import DirectoryPair, Entry, EntryKind, EnvPath, StoredAs, shown_path
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.printable_text import escape
from git_envhist.probes import node, python
from git_envhist.restore.plan_steps import Key
from git_envhist.snapshots.stored_names import is_name

MODULES = b"node_modules"
MANIFEST = b"package.json"
NPM_LOCKS = (b"package-lock.json", b"npm-shrinkwrap.json")
PYTHON_LOCKS = (b"uv.lock", b"poetry.lock", b"Pipfile.lock", b"requirements.txt")
SITE = re.compile(rb"(?:^|/)[^/]+/(?:lib(?:64)?/[^/]+|Lib)/(?:site|dist)-packages\Z")
METADATA = re.compile(rb"([^/]+)-([0-9][^/-]*)\.dist-info\Z")
VIRTUAL_ENVIRONMENTS = (b".venv", b"venv", b"env")
"""The names that are looked for besides those in which packages changed."""
LOCKED = ("locked=", "asked===")
SEPARATORS = re.compile(r"[-_.]+")
MAX_NAMED = 5
MAX_LOCK = 16 << 20

Versions = dict[str, str]


class LockMismatch(NamedTuple):
    """A package whose locked version is not installed."""

    name: str
    locked: str
    installed: str | None


@dataclass(slots=True)
class MergedTree:
    """The environment after a merge: the tree now, with the merged directories."""

    contents: ObjectReader
    list_now: Callable[[bytes, EnvPath], Mapping[bytes, Entry]]
    pairs: Mapping[Key, DirectoryPair]
    made: Mapping[bytes, bytes]
    """Merged contents, which are in no snapshot."""
    _listed: dict[Key, Mapping[bytes, Entry]] = field(default_factory=dict)

    def entries(self, root: bytes, path: EnvPath) -> Mapping[bytes, Entry]:
        """Return the merged entries of a directory."""
        if (root, path) not in self._listed:
            found = dict(self.list_now(root, path))
            pair = self.pairs.get((root, path))
            if pair is not None:
                for name in pair.before.entries if pair.before is not None else ():
                    found.pop(name, None)
                found.update(pair.after.entries if pair.after is not None else {})
            self._listed[root, path] = found
        return self._listed[root, path]

    def text(self, root: bytes, path: EnvPath) -> bytes | None:
        """Return the content of a plain file; None if there is none."""
        directory, _, name = path.rpartition(b"/")
        entry = self.entries(root, EnvPath(directory)).get(name)
        if entry is None or entry.oid is None or entry.kind is not EntryKind.FILE:
            return None
        if entry.stored is not StoredAs.PLAIN:
            return None
        data = self.made.get(entry.oid)
        data = self.contents.plain(entry) if data is None else data
        return data if len(data) <= MAX_LOCK else None


def lock_file_warnings(tree: MergedTree) -> Iterator[str]:
    """Yield a warning for each lock file that a merge touched and that disagrees with the installed packages."""
    for root, directory in sorted(_projects(tree.pairs)):
        present = tree.entries(root, directory)
        for name in NPM_LOCKS:
            if name in present:
                yield from _warnings(root, _join(directory, name), _npm(tree, root, directory, name))
        for name in PYTHON_LOCKS:
            if name in present:
                yield from _warnings(root, _join(directory, name), _python(tree, root, directory, name))


def _projects(pairs: Mapping[Key, DirectoryPair]) -> set[Key]:
    """Return the directories whose lock files or installed packages a merge changed."""
    found: set[Key] = set()
    for (root, path), pair in pairs.items():
        names = path.split(b"/")
        if MODULES in names:
            found.add((root, EnvPath(b"/".join(names[: names.index(MODULES)]))))
        elif (project := _project_of(path)) is not None:
            found.add((root, EnvPath(project)))
        elif not {*NPM_LOCKS, *PYTHON_LOCKS}.isdisjoint(_changed_names(pair)):
            found.add((root, path))
    return found


def _changed_names(pair: DirectoryPair) -> set[bytes]:
    before = {} if pair.before is None else pair.before.entries
    after = {} if pair.after is None else pair.after.entries
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _warnings(root: bytes, lock: EnvPath, found: Iterable[LockMismatch]) -> Iterator[str]:
    differing = sorted(set(found), key=lambda one: (one.name, one.locked, one.installed or ""))
    if not differing:
        return
    named = [
        f"{one.name} {one.locked} ({'not installed' if one.installed is None else f'installed: {one.installed}'})"
        for one in differing[:MAX_NAMED]
    ]
    more = len(differing) - len(named)
    rest = f" and {more:,} more" if more else ""
    yield escape(
        f"{shown_path(root, lock).decode('utf-8', 'surrogateescape')} and the installed packages disagree: "
        f"{', '.join(named)}{rest}"
    )


def _npm(tree: MergedTree, root: bytes, directory: EnvPath, name: bytes) -> Iterator[LockMismatch]:
    if MODULES not in tree.entries(root, directory):
        return
    text = tree.text(root, _join(directory, name))
    for path, version in _locked(node.read_npm_lock(text or b"")).items():
        try:
            place = _join(directory, path.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            # JSON can contain half of a surrogate pair, which no path has.
            continue
        if place and not all(map(is_name, place.split(b"/"))):
            continue
        manifest = tree.text(root, _join(place, MANIFEST))
        given = None if manifest is None else node.read_object(manifest).get("version")
        installed = given if isinstance(given, str) else None
        is_new = (root, place) in tree.pairs
        if installed != version and (installed is not None or is_new):
            yield LockMismatch(path.rpartition("node_modules/")[2], version, installed)


def _python(tree: MergedTree, root: bytes, directory: EnvPath, name: bytes) -> Iterator[LockMismatch]:
    text = tree.text(root, _join(directory, name)) or b""
    locked = _locked(_python_reader(name)(text))
    for site in _sites(tree, root, directory):
        pair = tree.pairs.get((root, site))
        before = _distributions({} if pair is None or pair.before is None else pair.before.entries)
        installed = _distributions(tree.entries(root, site))
        for package, version in locked.items():
            present = installed.get(package)
            if present != version and (present is not None or package in before):
                yield LockMismatch(package, version, present)


def _sites(tree: MergedTree, root: bytes, directory: EnvPath) -> set[EnvPath]:
    """Return the site directories of the virtual environments of a project."""
    found = {path for where, path in tree.pairs if where == root and _project_of(path) == directory}
    for name in VIRTUAL_ENVIRONMENTS:
        library = _join(_join(directory, name), b"lib")
        for version in tree.entries(root, library):
            found.add(_join(_join(library, version), b"site-packages"))
    return found


def _project_of(site: bytes) -> bytes | None:
    found = SITE.search(site)
    return None if found is None else site[: found.start()]


def _python_reader(name: bytes) -> Callable[[bytes], Iterable[tuple[str, str]]]:
    if name == b"requirements.txt":
        return python.read_requirements
    return python.read_pipfile_lock if name == b"Pipfile.lock" else python.read_packages_lock


def _locked(lines: Iterable[tuple[str, str]]) -> Versions:
    found: Versions = {}
    for name, value in lines:
        for word in LOCKED:
            if value.startswith(word):
                found[name] = value.removeprefix(word)
    return found


def _distributions(entries: Iterable[bytes]) -> Versions:
    found: Versions = {}
    for name in entries:
        match = METADATA.match(name)
        if match is not None:
            package = SEPARATORS.sub("-", match[1].decode("utf-8", "replace")).lower()
            found[package] = match[2].decode("utf-8", "replace")
    return found


def _join(directory: bytes, name: bytes) -> EnvPath:
    return EnvPath(directory + b"/" + name if directory else name)
