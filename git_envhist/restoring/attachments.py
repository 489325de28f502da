"""Gives back what was attached to a moment: the conversation, the outputs; into a directory, over nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from git_envhist.errors import EnvhistError, Refused
from git_envhist.model import EnvPath, Snapshot
from git_envhist.store.layout import ATTACHMENTS, RESERVED
from git_envhist.store.names import true_name
from git_envhist.store.objects import CatFile
from git_envhist.system import NOFOLLOW

Open = Callable[[EnvPath, bytes], bytes]
"""(stored name, sealed bytes) -> the bytes that were attached; `SealingError` where the key is not here."""


def read_attachments(reader: CatFile, snapshot: Snapshot, unseal: Open) -> Iterator[tuple[bytes, bytes]]:
    """(name, bytes) of each, in the order in which they were attached; those of the capture first."""
    for stored in snapshot.attachments:
        name = os.fsencode(stored)
        place = b"/".join((RESERVED, ATTACHMENTS, name))
        found = reader.read(os.fsencode(snapshot.tree) + b":" + place) if _is_name(name) else None
        if found is None or found.kind != "blob":
            raise EnvhistError(f"an attachment is missing from the snapshot: '{stored}'")
        yield true_name(name), unseal(EnvPath(name), found.data)
    for attached in snapshot.attached:
        name = os.fsencode(attached.name)
        found = reader.read(attached.blob) if _is_name(name) else None
        if found is None or found.kind != "blob":
            raise EnvhistError(f"what was attached later is missing: '{attached.name}'")
        yield true_name(name), unseal(attached_path(snapshot, name), found.data)


def attached_path(snapshot: Snapshot, stored: bytes) -> EnvPath:
    """What is sealed later is bound to the moment, too: no note can show it at another."""
    return EnvPath(snapshot.id.encode("ascii") + b"/" + stored)


def write_attachments(directory: str, attachments: Iterator[tuple[bytes, bytes]]) -> list[str]:
    """Write each under its own name; `Refused` where one of these is taken."""
    os.makedirs(directory, exist_ok=True)
    written = []
    for name, data in attachments:
        path = os.path.join(os.fsencode(directory), name)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise Refused(
                f"there is a file of that name already: '{os.fsdecode(path)}'", hint="take an empty directory"
            ) from None
        with open(descriptor, "wb") as file:
            file.write(data)
        written.append(os.fsdecode(path))
    return written


def _is_name(name: bytes) -> bool:
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name and b"\n" not in name
