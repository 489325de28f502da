"""What a caller wants of a capture."""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.model import Actor, IntentSource, Progress, RestorePart, Trigger
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
    progress: Callable[[Progress], None] | None = None
    waiting: Callable[[], None] | None = None
