"""What was attached to a moment, in memory: a conversation, the outputs of tools."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from git_envhist.capture.seal import unseal
from git_envhist.model import TOP, EnvPath, Snapshot
from git_envhist.restoring.attachments import read_attachments
from git_envhist.store.objects import CatFile

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory


def attachments_of(history: EnvHistory, snapshot: Snapshot) -> tuple[tuple[str, bytes], ...]:
    """(name, bytes) of each, byte for byte."""

    def opened(name: EnvPath, sealed: bytes) -> bytes:
        return unseal(history.keys.get, name, b"attachment", sealed)

    history.bring(snapshot, TOP)
    with CatFile(history.repository.git) as reader:
        found = list(read_attachments(reader, snapshot, opened))
    return tuple((os.fsdecode(name), data) for name, data in found)
