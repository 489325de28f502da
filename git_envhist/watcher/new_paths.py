"""New paths whose hard links are not counted yet.

A new path may be another name of a file in the environment: a write through it gives no event in the directory of
that file. So the links of each new path are counted, and a path that is gone before is a doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class _Entry(NamedTuple):
    since: int
    """When the file appeared in the environment; a move keeps it."""
    number: int
    """When it appeared at this path."""


Taken = Mapping[bytes, int]
"""New paths at and below a moved path: the part after it, and since when they are new."""


class NewPaths:
    """New paths in the order of their appearance."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}
        self._number = 0

    def __contains__(self, path: bytes) -> bool:
        return path in self._entries

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, path: bytes) -> None:
        """Add a path that appeared now."""
        self._number += 1
        self._entries[path] = _Entry(self._number, self._number)

    def remove(self, path: bytes) -> bool:
        """Remove a path; return whether it was new."""
        return self._entries.pop(path, None) is not None

    def take(self, top: bytes, *, is_directory: bool) -> Taken:
        """Remove the paths at a moved path, and below it if it is a directory, and return them."""
        if not self._entries:
            return {}
        paths = [top] if top in self._entries else []
        if is_directory:
            prefix = top + b"/"
            paths += [path for path in self._entries if path.startswith(prefix)]
        return {path[len(top) :]: self._entries.pop(path).since for path in paths}

    def put(self, top: bytes, taken: Taken) -> None:
        """Add paths that were taken, at the place to which they were moved."""
        for rest, since in taken.items():
            self._number += 1
            self._entries[top + rest] = _Entry(since, self._number)

    def clear(self) -> None:
        self._entries.clear()

    def now(self) -> int:
        """Return the number of the latest path, for `has_since`."""
        return self._number

    def has_since(self, number: int) -> bool:
        """Return whether a file is among these that appeared until then."""
        return any(entry.since <= number for entry in self._entries.values())

    def entries(self) -> Mapping[bytes, object]:
        """Return a copy, for `settle`."""
        return dict(self._entries)

    def settle(self, looked_at: Mapping[bytes, object], seen: Iterable[bytes]) -> bool:
        """Remove the paths that did not change since they were copied; return whether all of them were seen."""
        seen = frozenset(seen)
        same = [path for path, entry in looked_at.items() if self._entries.get(path) == entry]
        for path in same:
            del self._entries[path]
        return all(path in seen for path in same)
