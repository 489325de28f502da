"""System calls that stop like a killed process before the n-th change, and calls of limited file systems."""

from __future__ import annotations

import errno
from typing import Any

from git_envhist.restore.disk_calls import DiskCalls

CHANGES = frozenset(name for name in vars(DiskCalls) if not name.startswith("_"))


class Dead(BaseException):
    """Raised in place of a kill; the tested code must not catch it."""


class DyingCalls(DiskCalls):
    """Allow `left` changes, then raise `Dead`."""

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
    """A process that dies on a file system without atomic exchange."""


class DyingLinklessCalls(DyingCalls, LinklessCalls):
    """A process that dies on a file system without atomic exchange and hard links."""
