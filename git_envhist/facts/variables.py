"""Probe module for the variables that sealed files set: `.env`, `.env.local`, `.envrc`.

A fact names a variable. Its value is the beginning of a keyed hash, bound to the file and the variable: it says that a
value changed, and without the key nothing can be tried out against it.
"""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.dotenv import read_assignments
from git_envhist.facts.probe import Files, Keyed
from git_envhist.model import EnvPath, Fact

PROBE = "env"
SET = "set"
"""The value of a fact where there is no key."""


def wants(directory: bytes) -> bool:
    return True


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the variables of every sealed file that could be opened."""
    for name, file in files.items():
        if file.sealed and file.data is not None:
            path = directory + b"/" + name if directory else name
            for key, value in read_assignments(file.data).items():
                fingerprint = keyed(path + b"\0" + key, value) or SET
                yield Fact(PROBE, _text(path + b"/" + key), fingerprint, EnvPath(directory))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
