"""The captures that an agent's hooks ask for: whose each is, why, and what was said until then."""

from __future__ import annotations

import os
import select
import signal
import stat
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from git_envhist.api import AroundHistory
from git_envhist.consent import NOT_APPROVED, UNATTENDED, trusted_list
from git_envhist.discovery import OpenedRepository, open_repository
from git_envhist.disk import state_directory
from git_envhist.errors import EnvhistError, NotARepository
from git_envhist.git.config import current_actor
from git_envhist.integrations.agents.events import (
    AgentEvent,
    Job,
    project_of,
    read_event,
    spool_lock,
    take_spooled,
    turn_after,
    version_in,
)
from git_envhist.integrations.agents.outcomes import _path
from git_envhist.lazy import replace
from git_envhist.model import Actor, CaptureResult, IntentSource, Snapshot, Trigger

# What `git-envhist agent-hook` does, whatever comes in: it prints nothing and ends with 0.
#
# A hook that waits (`before`) leaves the work to a process of its own, so that an agent that loses patience ends the
# waiting and not the capture.

MAX_INPUT = 8 << 20
IDLE = 5.0
"""Seconds without a byte after which nothing more is expected of whoever left the input open."""
DONE = b"."
FIRST_OF_OTHERS, MAX_DESCRIPTORS = 3, 1 << 16


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
            kept += data[: MAX_INPUT - len(kept)]
    return bytes(kept)


Tell = Callable[[bytes], bool]
"""Says something to who waits; whether somebody still does."""


def _nobody_waits(_data: bytes) -> bool:
    return True


def _patience(event: AgentEvent, environ: Mapping[str, str]) -> float:
    """The seconds that a tool may be held for; asked here, since who captures may be late even in that."""
    from git_envhist.config import AGENT_WAIT, parse_duration  # loaded late: what only looks is not held
    from git_envhist.git.process import SAFE_GIT, clean_environment, spawn  # loaded late: likewise

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
    os.closerange(last + (kept is not None), MAX_DESCRIPTORS)


def _work(spool: str, event: AgentEvent | None, tell: Tell, environ: Mapping[str, str]) -> None:

    agents = AgentHistories(environ)
    outcomes = HookOutcomes(agents)
    for job in agents.due(spool, event, outcomes.failed):
        outcomes.run(job, tell if job.event is event else None)
    tell(DONE)


PROMPT = "prompt.txt"
"""The whole prompt is attached under this name."""
SEALED_AS = b"prompt"
MAX_TRANSCRIPT = 16 << 20
"""Of one that is longer its end is attached."""
LATE = (
    "the tool did not wait until this was captured: envhist.agentWait had passed, so that "
    "some of what it changed may be in here"
)
# What git sets for its own commands: an agent that runs inside one is none of these.
OF_GIT = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
)


class NotNamed(EnvhistError):
    """No person installed an agent's hooks in this repository or captured it."""

    code = "not-named"


class AgentHistories:
    """The environments that the events of one process are about, each opened once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = {name: value for name, value in environ.items() if name not in OF_GIT}
        self.environ[UNATTENDED] = "1"
        self._trusted = trusted_list(environ)
        self._open: dict[str, AroundHistory] = {}

    def history(self, event: AgentEvent) -> AroundHistory:
        """The history of the project that an agent works in; `NotNamed` if no person named its repository."""
        places = event.directories or (os.getcwd(),)
        found = next((one for one in places if one in self._open), None)
        if found is None:
            found, opened = self._first_named(places)
            self._open[found] = AroundHistory(opened, self.environ, workers="fork", directory=found)
        return self._open[found]

    def _first_named(self, directories: Sequence[str]) -> tuple[str, OpenedRepository]:
        for directory in directories:
            try:
                opened = open_repository(directory, self.environ)
            except NotARepository:
                continue
            if self._trusted.has_repository(opened.repository.common_dir):
                return directory, opened
        raise NotNamed(
            f"hooks do not capture the repository of '{directories[0]}': no person named it",
            hint="git envlog install --agent <name>, or capture it once: git envlog capture",
        )

    def due(
        self, spool: str, event: AgentEvent | None, failed: Callable[[AgentEvent, Exception], None]
    ) -> list[Job]:
        """The captures that are due, those of spooled events first."""
        with spool_lock(spool):
            events = [*take_spooled(spool, self.environ), *([event] if event else [])]
            jobs = [self._advance(each, failed) for each in events]
        return [job for job in jobs if job is not None]

    def capture(self, job: Job, captured: Callable[[CaptureResult], None]) -> CaptureResult:
        """Take the capture; nothing is made where nothing changed."""
        history, event = self.history(job.event), job.event
        transcript = read_transcript(event.transcript)
        actor = actor_of(event, current_actor(history.settings, self.environ), transcript)
        kind = "before" if event.kind == "before" else "after"
        attached = [(os.path.basename(event.transcript or ""), transcript)] if transcript else []
        prompt = open_prompt(history, job.turn.sealed)
        attached += [(PROMPT, prompt)] if prompt else []
        return history.capture(
            job.turn.prompt or None,
            intent_source=IntentSource.AGENT,
            trigger=Trigger.AGENT,
            if_changed=True,
            actor=actor,
            attached=attached,
            meta=(("agent-moment", kind), ("agent-turn", str(job.turn.number))),
            captured=captured,
        )

    def tell_late(self, job: Job, snapshot: Snapshot) -> None:
        """The card says that the tool was not held for long enough."""
        self.history(job.event).note(LATE, snapshot)

    def _advance(self, event: AgentEvent, failed: Callable[[AgentEvent, Exception], None]) -> Job | None:
        try:
            history = self.history(event)
            if not history.settings.enabled:
                return None
            state = os.path.join(history.repository.state, "agents")
            return turn_after(state, event, history.settings.agent_every, partial(seal_prompt, history))
        except Exception as error:
            failed(event, error)
            return None


def actor_of(event: AgentEvent, person: Actor, transcript: bytes) -> Actor:
    """The agent, in the name of the person it works for."""
    return replace(
        person,
        agent=event.agent,
        agent_version=event.version or version_in(transcript),
        session=event.session or None,
        tool=event.tool,
    )


def read_transcript(path: str | None) -> bytes:
    """What was said until now, as the agent keeps it; the end of it where it is very long."""
    if path is None:
        return b""
    try:
        # Nothing is waited for: what calls itself a transcript may be a pipe.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                return b""
            if seen.st_size <= MAX_TRANSCRIPT:
                return file.read(MAX_TRANSCRIPT)
            file.seek(-MAX_TRANSCRIPT, os.SEEK_END)
            return file.read(MAX_TRANSCRIPT).partition(b"\n")[2]
    except OSError:
        return b""


def seal_prompt(history: AroundHistory, prompt: str) -> str:
    """The whole prompt as text that only the key of the history opens; empty if there is no prompt or no key."""
    from git_envhist.secrets.seal import seal  # loaded late: most events bring no prompt

    if not prompt.strip():
        return ""
    try:
        plain = prompt.encode("utf-8", "replace")
        return b64encode(seal(history.keys.current(), PROMPT.encode(), SEALED_AS, plain)).decode("ascii")
    except (EnvhistError, OSError):
        return ""


def open_prompt(history: AroundHistory, sealed: str) -> bytes:
    """The prompt that `seal_prompt` sealed; empty if it cannot be opened."""
    from git_envhist.secrets.seal import unseal  # loaded late: likewise

    try:
        return unseal(history.keys.get, PROMPT.encode(), SEALED_AS, b64decode(sealed)) if sealed else b""
    except (EnvhistError, OSError, ValueError):
        return b""


# Runs what is due and keeps what came of it: nobody is told at the moment, `git envlog status` tells later.


class HookOutcomes:
    """What came of the captures of one process."""

    def __init__(self, agents: AgentHistories) -> None:
        self._agents = agents

    def run(self, job: Job, tell: Tell | None) -> None:
        """Take a capture; who waits for it is told as soon as it stands, the card that they did not wait for it."""
        waited = []

        def stands(_captured: CaptureResult) -> None:
            if tell is not None:
                waited.append(tell(DONE))

        try:
            captured = self._agents.capture(job, stands)
            if captured.snapshot is not None and False in waited:
                self._agents.tell_late(job, captured.snapshot)
            result = "captured" if captured.snapshot is not None else "nothing changed"
            why_not = next((f": {one}" for one in captured.warnings if NOT_APPROVED in one), "")
            self._keep(job.event, result + why_not)
        except Exception as error:
            self.failed(job.event, error)

    def failed(self, event: AgentEvent, error: Exception) -> None:
        """Keep why it failed; where there is no environment at all there is nobody to tell."""
        with suppress(Exception):
            self._keep(event, f"failed: {error}")

    def _keep(self, event: AgentEvent, outcome: str) -> None:
        place = state_directory(os.path.join(self._agents.history(event).repository.state, "agents"))
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        with open(
            _path(place, event.registered, event.kind), "w", encoding="utf-8", errors="replace"
        ) as file:
            file.write(f"{outcome} ({at})\n")
