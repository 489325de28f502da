"""The way down to one directory after another below an open one: what two have in common stays open."""

from __future__ import annotations

import os

from git_envhist.restore.hands import open_directory
from git_envhist.system import DIRECTORY, open_itself

MOST = 64
"""So many directories are open at most; the way to those that stand deeper is gone anew each time."""


class OpenPath:
    """Opens directories by their paths, name by name and through no link."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._path: bytes | None = None
        self._names: list[bytes] = []
        self._open: list[int] = []
        self._deep = -1

    def enter(self, path: bytes) -> int:
        """The open directory at a path, which stays open until another one is entered."""
        if path == self._path:
            return self._here
        self._path = None
        names = path.split(b"/") if path else []
        shared = 0
        while shared < min(len(names), len(self._names)) and names[shared] == self._names[shared]:
            shared += 1
        self._leave(shared)
        for name in names[shared:MOST]:
            self._open.append(open_itself(name, DIRECTORY, dir_fd=self._here))
            self._names.append(name)
        if len(names) > MOST:
            self._deep = open_directory(self._here, b"/".join(names[MOST:]))
        self._path = path
        return self._here

    def close(self) -> None:
        self._path = None
        self._leave(0)

    @property
    def _here(self) -> int:
        if self._deep >= 0:
            return self._deep
        return self._open[-1] if self._open else self.base

    def _leave(self, kept: int) -> None:
        deep, self._deep = self._deep, -1
        if deep >= 0:
            os.close(deep)
        # Let go of by its name before it is closed: a signal between the two would have it closed twice.
        while len(self._open) > kept:
            self._names.pop()
            os.close(self._open.pop())
