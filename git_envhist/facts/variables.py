"""The variables that sealed files set: `.env`, `.env.local`, `.envrc`. Their keys, and by what a value is known again.

A value is never told, and neither is anything that could be tried out without the key: what stands in its place is the
beginning of a keyed hash, bound to the file and the variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from git_envhist.facts.probe import Files, Keyed
from git_envhist.model import EnvPath, Fact

PROBE = "env"
LINE = re.compile(rb"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]{0,200})[ \t]*=(.*)")
SET = "set"
"""In the place of a fingerprint, where there is no key."""


def wants(directory: bytes) -> bool:
    return True


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The variables of every sealed file that could be opened."""
    for name, file in files.items():
        if file.sealed and file.data is not None:
            path = directory + b"/" + name if directory else name
            for key, value in _settings(file.data).items():
                told = keyed(path + b"\0" + key, value) or SET
                yield Fact(PROBE, _text(path + b"/" + key), told, EnvPath(directory))


def _settings(data: bytes) -> dict[bytes, bytes]:
    """What a file sets; the last line for a key wins."""
    found = (LINE.fullmatch(line) for line in data.replace(b"\r\n", b"\n").split(b"\n"))
    return {setting[1]: setting[2].strip() for setting in found if setting is not None}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
