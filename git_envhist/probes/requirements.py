"""Read requested packages from requirements files, manifests and lock files, and needs of installed packages.

These facts are not shown themselves; `diff.packages` compares them with the installed packages. The value of
a fact is a keyword and its argument:

    list, lock          the file was read: it requests packages; it locks versions
    asked===3.0.1       requests the package with this version; any version if nothing follows
    maybe=              names the package: an extra, a group, a marker, another source
    locked=3.0.1        locks the version
    needs=click,jinja2  of an installed package: its requirements
    extra=dotenv        of an installed package: requirements of its extras only
    requested=          of a package installed by pip: it was requested by name
    root=               of a package installed by npm: no other package needs it
    open=               the list requests more than can be read from it

`by` is the probe that lists the installed packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from git_envhist.model import EnvPath, Fact
from git_envhist.probes import ECOSYSTEMS, file_module, libraries, node, python
from git_envhist.probes.base import Files, Keyed, ProbedFile

PROBE = "declared"
Lines = Iterator[tuple[str, str]]
"""(name, value)"""
INSTALLED = libraries() | {b"_vendor", b".tox", b".nox"}
"""Lists below these directories belong to other projects."""
LISTS: dict[bytes, tuple[str, Callable[[bytes], Lines]]] = {
    name: (by, getattr(file_module(probe), reader) if reader else python.read_nothing)
    for by, probe in ECOSYSTEMS.items()
    for name, reader in probe.lists
}
"""By file name: the package manager, and the function that reads the file."""


def wants(directory: bytes) -> bool:
    parts = directory.split(b"/")
    if parts[-1].endswith(b".dist-info"):
        return b"_vendor" not in parts
    # npm records installed packages at the top of node_modules.
    return INSTALLED.isdisjoint(parts[:-1] if parts[-1] == b"node_modules" else parts)


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield packages that the lists of a directory request, or the dependencies of an installed package."""
    place, name = EnvPath(directory), directory.rpartition(b"/")[2]
    if name.endswith(b".dist-info"):
        if b"METADATA" in files:
            installer = files[b"INSTALLER"].data if b"INSTALLER" in files else None
            is_requested = python.is_requested(installer, is_marked=b"REQUESTED" in files)
            data = files[b"METADATA"].data or b""
            for key, value in python.read_metadata(directory, data, is_requested=is_requested):
                yield Fact(PROBE, key, value, place, "pip")
    elif name == b"node_modules":
        if b".package-lock.json" in files:
            for key, value in node.read_roots(files[b".package-lock.json"].data or b""):
                yield Fact(PROBE, _join(directory, key), value, place, "npm")
    else:
        yield from _lists(directory, files)


def _lists(directory: bytes, files: Files) -> Iterator[Fact]:
    for name in sorted(files):
        by, read = LISTS.get(name) or ("pip", python.read_requirements)
        if name in LISTS or python.is_requirements(directory, name):
            place = _join(directory, name.decode("utf-8", "surrogateescape"))
            for package, value in _lines(files[name], read):
                yield Fact(PROBE, f"{place}/{package}", value, EnvPath(directory), by)


def _lines(file: ProbedFile, read: Callable[[bytes], Lines]) -> Lines:
    # A sealed or very large list is unknown.
    if file.data is None or file.sealed:
        return iter([("?", "open=")])
    return iter(dict.fromkeys(read(file.data)))


def _join(directory: bytes, name: str) -> str:
    place = directory.decode("utf-8", "surrogateescape")
    return f"{place}/{name}" if place else name
