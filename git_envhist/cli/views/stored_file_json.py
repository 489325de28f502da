"""Return a file of a snapshot as JSON; the values in a sealed file are masked."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from git_envhist.cli.json_values import KIND_WORDS, SCHEMA, Json, path_fields
from git_envhist.model import EntryKind, EnvPath, Snapshot, StoredAs

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory

MAX_SIZE = 4 << 20
"""Bytes of a file above which its text is omitted."""
MASKED = "***"
BINARY, LARGE, SEALED = "binary", "large", "sealed"


def file_json(history: EnvHistory, snapshot: Snapshot, path: EnvPath, *, reveal: bool = False) -> Json:
    """Return a file: its kind, its size, and its text unless it is binary, large, or sealed and not masked."""
    with closing(history.reader(history.with_contents(snapshot, path))) as reader:
        entry, data = reader.entry(path), _at_most(reader.read(path), MAX_SIZE + 1)
    is_sealed = entry is not None and entry.stored is StoredAs.SEALED
    text, omitted = _text(path, data, sealed=is_sealed and not reveal)
    return {
        "schema": SCHEMA,
        "id": snapshot.id,
        **path_fields(path),
        "kind": KIND_WORDS[(entry.kind if entry is not None else EntryKind.FILE).value],
        "mode": None if entry is None else f"{entry.mode:04o}",
        "size": len(data) if len(data) <= MAX_SIZE else None,
        "sealed": is_sealed,
        "text": text,
        "omitted": omitted,
    }


def _at_most(blocks: Iterable[bytes], limit: int) -> bytes:
    read = bytearray()
    for block in blocks:
        read += block[: limit - len(read)]
        if len(read) == limit:
            break
    return bytes(read)


def _text(path: EnvPath, data: bytes, *, sealed: bool) -> tuple[str | None, str | None]:
    """Return the text, and why there is none."""
    if len(data) > MAX_SIZE:
        return None, LARGE
    if sealed:
        masked = mask_file(path, data)
        return (None, SEALED) if masked is None else (masked.decode("utf-8", "replace"), None)
    try:
        return (None, BINARY) if b"\0" in data else (data.decode("utf-8"), None)
    except UnicodeDecodeError:
        return None, BINARY


def mask_file(path: EnvPath, data: bytes) -> bytes | None:
    """Return a sealed file with masked values; None for a file that is secret as a whole."""
    from git_envhist.dotenv import read_assignments  # loaded late: few files are sealed
    from git_envhist.probes.variables import is_variables_file  # loaded late: likewise
    from git_envhist.secrets.rules import mask_program  # loaded late: likewise

    if is_variables_file(path):
        return b"".join(name + b"=" + MASKED.encode() + b"\n" for name in read_assignments(data))
    return mask_program(path, data)
