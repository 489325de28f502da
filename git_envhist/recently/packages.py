"""The packages that changed, told by the same leaves as a snapshot's: they are shown the directories that changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from git_envhist.facts import PACKAGES, tree_leaf, tree_probes
from git_envhist.facts.probe import File, FileProbe
from git_envhist.history.facts import role_of
from git_envhist.model import Fact, FactChange
from git_envhist.recently.walking import RecentEntry
from git_envhist.system import open_itself

NOT_INSTALLED = ("declared",)
"""Probes that tell what is asked for, and not what is there."""
LARGEST = 8 << 20
NOT_KNOWN = ""
"""In the place of a version that there was before."""


def changed_packages(root: bytes, found: Iterable[RecentEntry]) -> tuple[FactChange, ...]:
    """What the changed files of installers say; what was there before they cannot."""
    places: dict[bytes, dict[bytes, RecentEntry]] = {}
    for one in found:
        directory, _, name = one.path.rpartition(b"/")
        places.setdefault(directory, {})[name] = one
    probes = [
        (probe, set(probe.reads) | set(probe.sees))
        for name, probe in tree_probes().items()
        if probe.kind == PACKAGES and name not in NOT_INSTALLED
    ]
    told: dict[tuple[str, str, str], FactChange] = {}
    for directory, changed in places.items():
        for probe, patterns in probes:
            names = [name for name in changed if _is_meant(directory, name, patterns)]
            if names:
                born = all(changed[name].born for name in names)
                for fact in _facts(root, directory, probe, patterns):
                    told[fact.probe, fact.key, fact.value] = _as_change(fact, born)
    return tuple(told[key] for key in sorted(told))


def _as_change(fact: Fact, born: bool) -> FactChange:
    before = None if born else NOT_KNOWN
    return FactChange(
        fact.probe, fact.key, before, fact.value, fact.at, fact.by, fact.auto, role_of(fact.auto)
    )


def _facts(root: bytes, directory: bytes, probe: FileProbe, patterns: Iterable[bytes]) -> Iterator[Fact]:
    leaf = tree_leaf(probe)
    try:
        if leaf.wants(directory):
            files = dict(_files(root, directory, probe, patterns))
            yield from list(leaf.facts_of(directory, files, lambda context, secret: None))
    except Exception:  # whatever it is: this one directory is among the files that changed all the same
        return


def _files(
    root: bytes, directory: bytes, probe: FileProbe, patterns: Iterable[bytes]
) -> Iterator[tuple[bytes, File]]:
    place = os.path.join(root, directory)
    for name in os.listdir(place):
        if _is_meant(directory, name, patterns):
            path = os.path.join(place, name)
            told = os.lstat(path)
            wanted = (
                stat.S_ISREG(told.st_mode)
                and told.st_size <= LARGEST
                and _is_meant(directory, name, probe.reads)
            )
            yield name, File(_read(path) if wanted else None, told.st_size, False, b"")


def _read(path: bytes) -> bytes:
    with open(path, "rb", opener=lambda name, flags: open_itself(name, flags | os.O_NONBLOCK)) as file:
        return file.read(LARGEST)


def _is_meant(directory: bytes, name: bytes, patterns: Iterable[bytes]) -> bool:
    here = directory.rpartition(b"/")[2]
    for pattern in patterns:
        place, slash, wanted = pattern.rpartition(b"/")
        if (not slash or place == here) and _matches(name, wanted):
            return True
    return False


def _matches(name: bytes, wanted: bytes) -> bool:
    if wanted.startswith(b"*"):
        return name.endswith(wanted[1:])
    return name.startswith(wanted[:-1]) if wanted.endswith(b"*") else name == wanted
