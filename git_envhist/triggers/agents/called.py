"""What `git-envhist agent-hook` does, whatever comes in: it prints nothing and ends with 0.

A hook that waits (`before`) leaves the work to a process of its own, so that an agent that loses patience ends the
waiting and not the capture.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from git_envhist.triggers.agents.events import AgentEvent, project_of, read_event

LONGEST_INPUT = 8 << 20
IDLE = 5.0
"""Seconds without a byte after which nothing more is expected of whoever left the input open."""
DONE = b"."
FIRST_OF_OTHERS, MOST_DESCRIPTORS = 3, 1 << 16


def handle_agent_hook(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """`<shim> <agent> before|spooled`, as the shim calls it."""
    with suppress(Exception):
        shim, agent, kind = words
        spool = os.path.join(os.path.dirname(shim), "spool")
        if kind == "before":
            event = read_event(agent, kind, read_input(0), environ, project_of(agent, environ))
            # What only looks is not held at all.
            if event is not None and event.modifies:
                _hold(lambda tell: _work(spool, event, tell, environ), lambda: _patience(event, environ))
        elif kind == "spooled":
            _leave()
            _work(spool, None, _nobody_waits, environ)
    return 0


def read_input(descriptor: int) -> bytes:
    """What the agent wrote, to its end; of what is longer than any message the beginning."""
    kept = bytearray()
    with suppress(OSError, ValueError):
        while select.select([descriptor], [], [], IDLE)[0]:
            data = os.read(descriptor, 1 << 16)
            if not data:
                break
            kept += data[: LONGEST_INPUT - len(kept)]
    return bytes(kept)


Tell = Callable[[bytes], bool]
"""Says something to who waits; whether somebody still does."""


def _nobody_waits(_data: bytes) -> bool:
    return True


def _patience(event: AgentEvent, environ: Mapping[str, str]) -> float:
    """The seconds that a tool may be held for; asked here, since who captures may be late even in that."""
    from git_envhist.settings import AGENT_WAIT, parse_duration  # loaded late: what only looks is not held
    from git_envhist.store.git import SAFE_GIT, clean_environment, spawn  # loaded late: likewise

    variables = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
    directory = next(iter(event.directories), ".")
    words = [*SAFE_GIT, "-C", directory, "config", "--get", "envhist.agentwait"]
    with suppress(Exception):
        told = parse_duration(
            spawn(words, clean_environment(variables)).out.decode("utf-8", "replace").strip()
        )
        return AGENT_WAIT if told is None else told
    return AGENT_WAIT


def _hold(work: Callable[[Tell], None], patience: Callable[[], float]) -> None:
    """Have the work done by a process of its own, and wait for as long as a tool may be held."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            _leave(writing)
            work(lambda data: _write(writing, data))
        finally:
            os._exit(0)
    os.close(writing)
    started, told = time.monotonic(), b""
    wait = patience()
    while not told.endswith(DONE):
        left = started + wait - time.monotonic()
        if not select.select([reading], [], [], max(0.0, left))[0]:
            break
        data = os.read(reading, 64)
        if not data:
            break
        told += data


def _write(descriptor: int, data: bytes) -> bool:
    try:
        os.write(descriptor, data)
        return True
    except OSError:
        return False


def _leave(kept: int | None = None) -> None:
    """Go on without whoever called: no terminal, no group, none of their streams and descriptors but one of ours."""
    with suppress(OSError):
        os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with open(os.devnull, "rb+", buffering=0) as nothing:
        for descriptor in (0, 1, 2):
            os.dup2(nothing.fileno(), descriptor)
    # An agent that waits for the end of a pipe of its own, whatever its number, is not to wait for us.
    last = FIRST_OF_OTHERS if kept is None else kept
    os.closerange(FIRST_OF_OTHERS, last)
    os.closerange(last + (kept is not None), MOST_DESCRIPTORS)


def _work(spool: str, event: AgentEvent | None, tell: Tell, environ: Mapping[str, str]) -> None:
    from git_envhist.triggers.agents.moments import (
        AgentHistories,  # loaded late: who waits needs nothing of it
    )
    from git_envhist.triggers.agents.outcomes import HookOutcomes  # loaded late: likewise

    agents = AgentHistories(environ)
    outcomes = HookOutcomes(agents)
    for job in agents.due(spool, event, outcomes.failed):
        outcomes.run(job, tell if job.event is event else None)
    tell(DONE)
