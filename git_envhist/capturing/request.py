"""What a caller wants of a capture."""

from __future__ import annotations

import os
from collections.abc import Callable

from git_envhist.errors import EnvhistError
from git_envhist.model import Actor, IntentSource, Progress, RestorePart, Trigger
from git_envhist.services.states import NONE, Dumps
from git_envhist.values import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One capture, as it was asked for."""

    intent: bytes | None = None
    intent_source: IntentSource | None = None
    name: str | None = None
    if_changed: bool = False
    strict: bool = False
    meta: tuple[tuple[str, str], ...] = ()
    external_id: str | None = None
    attach: tuple[tuple[str, bytes], ...] = ()
    trigger: Trigger = Trigger.MANUAL
    actor: Actor | None = None
    dry_run: bool = False
    force: bool = False
    restore: RestorePart | None = None
    restored_from: str | None = None
    forked_from: str | None = None
    progress: Callable[[Progress], None] | None = None
    waiting: Callable[[], None] | None = None
    dumps: Dumps = NONE
    """What services gave; nobody asks them while a lock is held."""


def read_attachment(path: str) -> tuple[str, bytes]:
    """A file that is to be kept with a moment: its name and its bytes."""
    try:
        with open(path, "rb") as file:
            return os.path.basename(path), file.read()
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise EnvhistError(f"cannot attach '{path}': {reason}") from error
