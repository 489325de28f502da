"""System calls that fail like a killed process before their n-th change, and calls of lesser file systems."""

from __future__ import annotations

import errno
from typing import Any

from git_envhist.restore.disk_calls import DiskCalls

CHANGES = frozenset(name for name in vars(DiskCalls) if not name.startswith("_"))


class Dead(BaseException):
    """The process was killed; nothing of it catches this."""


class DyingCalls(DiskCalls):
    """Make `left` more changes, then none."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in CHANGES:
            return found

        def mortal(*arguments: Any) -> Any:
            if self.left <= 0:
                raise Dead
            self.left -= 1
            return found(*arguments)

        return mortal


class PlainCalls(DiskCalls):
    """A file system without atomic exchange and without rename-noreplace."""

    def _rename(self, *_: Any) -> bool:
        return False


class LinklessCalls(PlainCalls):
    """A file system that also has no hard links (except those that the environment needs)."""

    moving = False

    def move(self, *names: Any) -> None:
        self.moving = True
        try:
            super().move(*names)
        finally:
            self.moving = False

    def link(self, *names: Any) -> None:
        if self.moving:
            raise PermissionError(errno.EPERM, "no links here")
        super().link(*names)


class DyingPlainCalls(DyingCalls, PlainCalls):
    """Both."""


class DyingLinklessCalls(DyingCalls, LinklessCalls):
    """All three."""
