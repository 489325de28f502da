"""What makes an agent what it is, as a fingerprint: prompts, tools, settings; two are alike or they are not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from git_envhist.doing.values import encode
from git_envhist.errors import EnvhistError
from git_envhist.system import open_file_only

DIGITS = 16


def definition_of(*parts: object) -> str:
    """The fingerprint of plain values: text, bytes, numbers, lists, dictionaries in the order of their keys.

    >>> definition_of("You are careful.", {"tools": ["shell", "edit"]})
    '8f5a33169c83ca10'
    """
    return hashlib.sha256(encode([_ordered(part) for part in parts])).hexdigest()[:DIGITS]


def definition_of_files(paths: Iterable[str]) -> str | None:
    """The fingerprint of files, whatever they are called; None where there are none."""
    contents = [_read(path) for path in paths]
    return definition_of(*contents) if contents else None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", opener=open_file_only) as file:
            return file.read()
    except OSError as error:
        raise EnvhistError(f"cannot read '{path}': {os.strerror(error.errno or 0).lower()}") from error


def _ordered(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _ordered(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_ordered(one) for one in value]
    return value
