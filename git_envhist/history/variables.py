"""Differences between two versions of a file of environment variables (pure)."""

from __future__ import annotations

from typing import NamedTuple

from git_envhist.dotenv import read_assignments


class VariableChange(NamedTuple):
    """One variable that differs; None on the side where it is not set."""

    key: str
    before: bytes | None
    after: bytes | None

    @property
    def mark(self) -> str:
        if self.before is None:
            return "+"
        return "−" if self.after is None else "~"


def is_variables(path: bytes) -> bool:
    """Whether a file's name says that it holds variables: `.env`, `.env.local`, `.envrc`, `prod.env`."""
    name = path.rpartition(b"/")[2]
    return name in (b".env", b".envrc") or name.startswith((b".env.", b".envrc.")) or name.endswith(b".env")


def compare_variables(before: bytes, after: bytes) -> tuple[VariableChange, ...]:
    """Return the variables that differ, in the order of the later file; removed ones come last."""
    old, new = read_assignments(before), read_assignments(after)
    names = [*new, *(name for name in old if name not in new)]
    return tuple(
        VariableChange(name.decode("ascii"), old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    )
