"""Directories that could not be looked at for an error of the file system, so that they are not taken for removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from git_envhist.capture.descent import display_path, is_realm_top
from git_envhist.model import EnvPath, MissingPath, MissingReason


class FailedDirectories:
    """Collects directories of one capture that could not be read."""

    def __init__(self) -> None:
        self.unlisted: dict[bytes, int] = {}
        """Directories that could not be listed during the walk, with the number of the error."""
        self._found: dict[bytes, MissingPath] = {}

    def note(self, path: bytes, *reason: object) -> None:
        """Note a directory of which not even a stat could be read; `reason`: why and detail, empty if it is gone."""
        if reason:
            why, detail = cast(tuple[str, str], reason)
            self._found[path] = MissingPath(EnvPath(display_path(path)), MissingReason(why), detail)

    def missing(self, known: Iterable[MissingPath]) -> Iterator[MissingPath]:
        """Yield the noted directories, without those that lie in one that is `known` to be missing."""
        listed = {one.path for one in known} if self._found else set()
        for path in sorted(self._found):
            above = path
            while not is_realm_top(above) and display_path(above) not in listed:
                above = above.rpartition(b"/")[0]
            if display_path(above) not in listed:
                listed.add(self._found[path].path)
                yield self._found[path]
