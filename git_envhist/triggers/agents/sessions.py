"""What is kept between two hooks: what agents left in the spool, and where each session stands.

Both are read and written under one lock, events in the order in which they came: whoever comes first, the process that
a hook left behind or the hook that waits, does what is due up to its own event.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from git_envhist.capture.masking import title_of
from git_envhist.errors import EnvhistError, in_words
from git_envhist.store.locks import locked, state_directory
from git_envhist.system import open_file_only
from git_envhist.triggers.agents.events import AgentEvent, read_event
from git_envhist.triggers.agents.turns import Job, SessionState, advance, read_turn, write_turn
from git_envhist.values import replace

TOLD = ".told"
LOCK = "lock"
UNFINISHED = 3600
"""Seconds after which nobody writes any more what it began to."""
KINDS = ("prompt", "after", "end")
OLD = 7 * 86_400
"""Seconds after which a session that nobody ended is forgotten."""


@contextmanager
def held(spool: str) -> Iterator[None]:
    """Nobody else takes from the spool."""
    state_directory(spool)
    with locked(os.path.join(spool, LOCK)):
        yield


def take_spooled(spool: str, environ: Mapping[str, str]) -> Iterator[AgentEvent]:
    """The events that hooks left, oldest first; each is gone from the spool when it is given.

    The first line of each is the project directory that the agent named, or empty.
    """
    for path in _oldest_first(spool):
        name = os.path.basename(path)
        agent, _, rest = name.partition(".")
        kind = rest.partition(".")[0]
        try:
            with open(path, "rb", opener=open_file_only) as file:
                data = file.read()
            os.unlink(path)
        except OSError:
            continue
        project, _, told = data.partition(b"\n")
        event = read_event(agent, kind, told, environ, os.fsdecode(project)) if kind in KINDS else None
        if event is not None:
            yield event


def turn_after(state: str, event: AgentEvent, every: int, seal: Callable[[str], str]) -> Job | None:
    """Let the session of an event go on by it; the capture that is due.

    `seal`: the whole prompt as it may be stored; between two hooks no file holds a prompt in the clear.
    """
    directory = state_directory(os.path.join(state, "sessions"))
    path = os.path.join(directory, hashlib.sha256(event.session.encode()).hexdigest()[:32])
    before = _read(path)
    turn, job = advance(before, event, now=time.time(), every=every)
    if event.kind == "prompt":
        _forget_old(directory)
    if turn.number != before.number:
        turn = replace(turn, prompt=title_of(event.prompt), sealed=seal(event.prompt))
    _write(path, turn)
    return job


def _oldest_first(spool: str) -> list[str]:
    rows = []
    with suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.endswith(TOLD):
                    rows.append((entry.stat().st_mtime_ns, entry.path))
                elif _is_abandoned(entry):
                    os.unlink(entry.path)
    return [path for _, path in sorted(rows)]


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Whether a hook was killed while it wrote down what it was told, which may be a prompt."""
    return entry.name != LOCK and entry.stat().st_mtime < time.time() - UNFINISHED


def _read(path: str) -> SessionState:
    try:
        with open(path, "rb", opener=open_file_only) as file:
            return read_turn(json.load(file))
    except (OSError, ValueError, RecursionError):
        return SessionState()


def _write(path: str, turn: SessionState) -> None:
    value = write_turn(turn)
    new = f"{path}.new"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.rename(new, path)
    except OSError as error:
        raise EnvhistError(f"cannot remember where a session stands: {in_words(error)}") from error


def _forget_old(directory: str) -> None:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.stat().st_mtime < time.time() - OLD:
                    os.unlink(entry.path)
