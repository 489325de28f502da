"""Find the files of an installed package, so that versions of it are never mixed.

A Python distribution is known by its name in its site directory, whatever installed it: `dist-info` with its `RECORD`,
`egg-info` with its list of files or its top modules, an `.egg`, or a link to its source. A package of Node is its
directory below `node_modules`, in pnpm's or Yarn's store too, with the links to its commands. A database and its log
are a unit as well.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from git_envhist.lazy import dataclass, field
from git_envhist.model import DirectoryPair, Entry, EntryKind, EnvPath, StoredAs
from git_envhist.model.entries import database_of_sidecar
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.restore.plan_steps import Key
from git_envhist.restore.three_way import ConflictReason, Unit, database_units

NODE_MODULES = b"node_modules"
STORES = (b".pnpm", b".store")
COMMANDS = b".bin"
RECORD, INSTALLED_FILES, TOP_LEVEL = b"RECORD", b"installed-files.txt", b"top_level.txt"
DIST_INFO, EGG_INFO, EGG, EGG_LINK = METADATA = (b".dist-info", b".egg-info", b".egg", b".egg-link")
SITES = (b"site-packages", b"dist-packages")
EDITABLE = re.compile(rb"__editable__[._]+([A-Za-z0-9][A-Za-z0-9_.]*?)[-_]\d[^/]*\.(?:pth|py)\Z")
SEPARATORS = re.compile(rb"[-_.]+")
COMMAND_TARGET = re.compile(rb"\.\./((?:@[^/\s\"']+/)?[^./\s\"'][^/\s\"']*)/")
MAX_LIST = 16 << 20
"""The size of the largest list of files that is read."""


@dataclass(slots=True)
class PackageUnits:
    """The unit of each path: a Python distribution, a package of Node, a database with its log."""

    _contents: ObjectReader
    _units: dict[Key, Unit] = field(default_factory=dict)
    _trees: dict[Key, Unit] = field(default_factory=dict)
    """Directories that belong to a unit with everything below them."""

    @classmethod
    def of(cls, contents: ObjectReader, pairs: Iterable[DirectoryPair]) -> PackageUnits:
        """Read the lists of files in the directories that differ."""
        pairs = list(pairs)
        found = cls(contents, dict(database_units(pairs)))
        for pair in pairs:
            name = pair.path.rpartition(b"/")[2]
            if name.endswith((DIST_INFO, EGG_INFO)):
                found._read_metadata(pair)
            elif name == COMMANDS and pair.path.endswith(NODE_MODULES + b"/" + COMMANDS):
                found._read_commands(pair)
        return found

    def add_database(self, root: bytes, directory: EnvPath, names: Iterable[bytes]) -> None:
        """Add each database with a log or a journal among these names, also if that is equal on all sides."""
        for name in names:
            database = database_of_sidecar(name)
            if database is not None:
                unit = Unit(root, _below(directory, database), ConflictReason.DATABASE)
                self._units[root, unit.path] = self._units[root, _below(directory, name)] = unit

    def unit_of(self, root: bytes, path: EnvPath) -> Unit | None:
        """Return the unit of a path; None if it has none."""
        found = self._units.get((root, path)) or node_unit(root, path) or python_unit(root, path)
        if found is None and self._trees:
            above = path.rpartition(b"/")[0]
            while above and found is None:
                found = self._trees.get((root, EnvPath(above)))
                above = above.rpartition(b"/")[0]
        return found

    def _read_metadata(self, pair: DirectoryPair) -> None:
        unit = distribution_unit(pair.root, pair.path)
        site = pair.path.rpartition(b"/")[0]
        for listing in (pair.before, pair.after):
            entries = {} if listing is None else listing.entries
            for name in self._rows(entries.get(RECORD)):
                self._units[pair.root, _below(site, name)] = unit
            for name in self._lines(entries.get(INSTALLED_FILES)):
                self._units[pair.root, _below(pair.path, name)] = unit
            for name in self._lines(entries.get(TOP_LEVEL)):
                # Such a package has no list of files if it was installed in another way.
                is_module = b"/" not in name and name not in (b".", b"..")
                if is_module and INSTALLED_FILES not in entries and RECORD not in entries:
                    self._trees[pair.root, _below(site, name)] = unit
                    self._units[pair.root, _below(site, name + b".py")] = unit

    def _read_commands(self, pair: DirectoryPair) -> None:
        above = pair.path.rpartition(b"/")[0]
        for listing in (pair.before, pair.after):
            for name, entry in ({} if listing is None else listing.entries).items():
                target = COMMAND_TARGET.search(self._text(entry))
                if target is not None:
                    unit = Unit(pair.root, EnvPath(above + b"/" + target[1]), ConflictReason.PACKAGE)
                    self._units[pair.root, EnvPath(pair.path + b"/" + name)] = unit

    def _rows(self, record: Entry | None) -> Iterator[bytes]:
        text = self._text(record).decode("utf-8", "surrogateescape")
        for row in _csv_rows(text.splitlines()):
            if row and row[0] and "\0" not in row[0]:
                yield row[0].encode("utf-8", "surrogateescape")

    def _lines(self, listed: Entry | None) -> Iterator[bytes]:
        for line in self._text(listed).splitlines():
            if line.strip() and b"\0" not in line:
                yield line.strip()

    def _text(self, entry: Entry | None) -> bytes:
        if entry is None or entry.oid is None or entry.stored is not StoredAs.PLAIN:
            return b""
        if entry.kind not in (EntryKind.FILE, EntryKind.LINK):
            return b""
        text = self._contents.plain(entry)
        return text if len(text) <= MAX_LIST else b""


def _csv_rows(lines: list[str]) -> list[list[str]]:
    """Return the rows of a list; if it is damaged, those of the lines that can be read alone."""
    try:
        return list(csv.reader(lines))
    except csv.Error:
        found: list[list[str]] = []
        for line in lines:
            with suppress(csv.Error):
                found += csv.reader([line])
        return found


def _below(directory: bytes, name: bytes) -> EnvPath:
    return EnvPath(posixpath.normpath(posixpath.join(directory, name)))


def distribution_unit(root: bytes, place: bytes) -> Unit:
    """Return the unit of a Python distribution, given the path of its metadata."""
    site, _, name = place.rpartition(b"/")
    is_link = name.endswith(EGG_LINK)
    for ending in METADATA:
        name = name.removesuffix(ending)
    # The name of a link has no version, and may have hyphens.
    package = SEPARATORS.sub(b"-", name if is_link else name.partition(b"-")[0]).lower()
    return Unit(root, EnvPath(site + b"/" + package if site else package), ConflictReason.PACKAGE)


def python_unit(root: bytes, path: EnvPath) -> Unit | None:
    """Return the unit of metadata, of a file in an `.egg`, or of a link to the source; None for other paths."""
    names = path.split(b"/")
    for depth, name in enumerate(names):
        is_in_site = depth > 0 and names[depth - 1] in SITES
        if name.endswith(DIST_INFO) and depth < len(names) - 1:
            return distribution_unit(root, b"/".join(names[: depth + 1]))
        if is_in_site and name.endswith((EGG_INFO, EGG, EGG_LINK)):
            return distribution_unit(root, b"/".join(names[: depth + 1]))
        editable = EDITABLE.match(name) if is_in_site else None
        if editable is not None:
            return distribution_unit(root, b"/".join([*names[:depth], editable[1]]))
    return None


def node_unit(root: bytes, path: EnvPath) -> Unit | None:
    """Return the unit of a path in a package below `node_modules`, or of the link to it; None for other paths."""
    names = path.split(b"/")
    if NODE_MODULES not in names[:-1]:
        return None
    first = len(names) - names[:-1][::-1].index(NODE_MODULES) - 1
    end = first + (2 if names[first].startswith(b"@") or names[first] in STORES else 1)
    if end > len(names) or (names[first].startswith(b".") and names[first] not in STORES):
        return None
    if names[first] in STORES and end == len(names):
        return None
    return Unit(root, EnvPath(b"/".join(names[:end])), ConflictReason.PACKAGE)
