"""Environment variables in files such as `.env`: facts of sealed files, and comparison of two versions.

A fact names a variable. Its value is a fingerprint bound to the file and the variable; without the key it
cannot be tested against guesses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from git_envhist.dotenv import read_assignments
from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed

PROBE = "env"
SET = "set"
"""The value of a fact if there is no key to make a fingerprint: the variable is set."""


def wants(directory: bytes) -> bool:
    return True


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the variables of every sealed file that could be unsealed."""
    for name, file in files.items():
        if file.sealed and file.data is not None:
            path = directory + b"/" + name if directory else name
            for key, value in read_assignments(file.data).items():
                fingerprint = keyed(path + b"\0" + key, value) or SET
                yield Fact(PROBE, _text(path + b"/" + key), fingerprint, EnvPath(directory))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class VariableChange(NamedTuple):
    """A variable that differs; None on the side where it is not set."""

    key: str
    before: bytes | None
    after: bytes | None

    @property
    def mark(self) -> str:
        if self.before is None:
            return "+"
        return "−" if self.after is None else "~"


def is_variables_file(path: bytes) -> bool:
    """Return whether a file name is one for variables: `.env`, `.env.local`, `.envrc`, `prod.env`."""
    name = path.rpartition(b"/")[2]
    return name in (b".env", b".envrc") or name.startswith((b".env.", b".envrc.")) or name.endswith(b".env")


def compare_variables(before: bytes, after: bytes) -> tuple[VariableChange, ...]:
    """Return the variables that differ, in the order of the newer file; removed ones come last."""
    old, new = read_assignments(before), read_assignments(after)
    names = [*new, *(name for name in old if name not in new)]
    return tuple(
        VariableChange(name.decode("ascii"), old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    )
