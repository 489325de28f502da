"""What a caller wants of a capture."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from git_envhist import spelling
from git_envhist.errors import EnvhistError
from git_envhist.lookup import as_sequence, refuse_unknown
from git_envhist.model import Actor, CaptureProgress, CaptureResult, IntentSource, RestoreRole, Trigger
from git_envhist.services.states import NONE, Dumps
from git_envhist.system import read_or_stop
from git_envhist.values import dataclass
from git_envhist.verifying.watching import CheckListener


def ignore_progress(_captured: CaptureResult) -> None:
    """Nobody waits to hear."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
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
    restore: RestoreRole | None = None
    restored_from: str | None = None
    forked_from: str | None = None
    progress: Callable[[CaptureProgress], None] | None = None
    waiting: Callable[[], None] | None = None
    captured: Callable[[CaptureResult], None] = ignore_progress
    """Told what came of it, before anything is checked."""
    dumps: Dumps = NONE
    """What services gave; nobody asks them while a lock is held."""


class CaptureKeywords(TypedDict, total=False):
    """What can be asked of a capture, as `EnvHistory.capture` takes it."""

    name: str | None
    if_changed: bool
    strict: bool
    meta: Mapping[str, str] | Sequence[tuple[str, str]]
    external_id: str | None
    attach: Sequence[str | os.PathLike[str]]
    attached: Sequence[tuple[str, bytes]]
    """(name, bytes) of what is kept with it and is no file to be read."""
    conversation: Sequence[object] | None
    """Plain values, kept with it and given back by `EnvHistory.get`."""
    tool_outputs: Sequence[object] | None
    trigger: Trigger
    actor: Actor | None
    """Who takes it; the person in front of the machine, where nobody is said."""
    intent_source: IntentSource | None
    dry_run: bool
    force: bool
    progress: Callable[[CaptureProgress], None] | None
    waiting: Callable[[], None] | None
    captured: Callable[[CaptureResult], None]
    verify: str | None
    """The command that then says whether the environment works."""
    watching: CheckListener
    """What is told while it runs."""


def capture_options(intent: bytes | str | None, asked: CaptureKeywords) -> CaptureOptions:
    """The capture that some words ask for; a program took it unless they say otherwise."""
    refuse_unknown("capture", asked, CaptureKeywords.__annotations__)
    whole: CaptureKeywords = {"trigger": Trigger.API, **asked}
    external_id = whole.get("external_id")
    return CaptureOptions(
        spelling.in_bytes(intent) if isinstance(intent, str) else intent,
        name=whole.get("name"),
        if_changed=whole.get("if_changed", False),
        strict=whole.get("strict", False),
        meta=pairs(whole.get("meta", ())),
        external_id=None if external_id is None else spelling.replace_surrogates(external_id),
        intent_source=whole.get("intent_source"),
        attach=(
            *map(read_attachment, map(os.fspath, as_sequence(whole.get("attach", ())))),
            *whole.get("attached", ()),
        ),
        actor=whole.get("actor"),
        trigger=whole["trigger"],
        dry_run=whole.get("dry_run", False),
        force=whole.get("force", False),
        progress=whole.get("progress"),
        waiting=whole.get("waiting"),
        captured=whole.get("captured", ignore_progress),
    )


def pairs(meta: Mapping[str, str] | Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Values by keys, however they are given."""
    given = meta.items() if isinstance(meta, Mapping) else meta
    return tuple(
        (spelling.replace_surrogates(key), spelling.replace_surrogates(value)) for key, value in given
    )


def read_attachment(path: str) -> tuple[str, bytes]:
    """Return the name and the bytes of a file, or of a pipe, that is to be kept with a snapshot."""
    try:
        return os.path.basename(path), read_or_stop(path)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise EnvhistError(f"cannot attach '{path}': {reason}") from error
