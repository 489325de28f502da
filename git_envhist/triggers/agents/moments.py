"""The captures that an agent's hooks ask for: whose each is, why, and what was said until then."""

from __future__ import annotations

import os
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from git_envhist.api import EnvHistory
from git_envhist.capturing.attendance import UNATTENDED, trusted_list
from git_envhist.capturing.identity import current_actor
from git_envhist.errors import EnvhistError, NotARepository
from git_envhist.model import Actor, CaptureResult, IntentSource, Snapshot, Trigger
from git_envhist.opening import OpenedRepository, open_repository
from git_envhist.triggers.agents.events import AgentEvent, version_in
from git_envhist.triggers.agents.sessions import held, take_spooled, turn_after
from git_envhist.triggers.agents.turns import Job
from git_envhist.values import replace

PROMPT = "prompt.txt"
"""The whole prompt is attached under this name."""
SEALED_AS = b"prompt"
LARGEST_TRANSCRIPT = 16 << 20
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
        self._open: dict[str, EnvHistory] = {}

    def history(self, event: AgentEvent) -> EnvHistory:
        """The history of the project that an agent works in; `NotNamed` if no person named its repository."""
        places = event.directories or (os.getcwd(),)
        found = next((one for one in places if one in self._open), None)
        if found is None:
            found, opened = self._first_named(places)
            self._open[found] = EnvHistory(opened, self.environ, workers="fork", directory=found)
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
        with held(spool):
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
            if seen.st_size <= LARGEST_TRANSCRIPT:
                return file.read(LARGEST_TRANSCRIPT)
            file.seek(-LARGEST_TRANSCRIPT, os.SEEK_END)
            return file.read(LARGEST_TRANSCRIPT).partition(b"\n")[2]
    except OSError:
        return b""


def seal_prompt(history: EnvHistory, prompt: str) -> str:
    """The whole prompt as text that only the key of the history opens; empty if there is no prompt or no key."""
    from git_envhist.capture.seal import seal  # loaded late: most events bring no prompt

    if not prompt.strip():
        return ""
    try:
        plain = prompt.encode("utf-8", "replace")
        return b64encode(seal(history.keys.current(), PROMPT.encode(), SEALED_AS, plain)).decode("ascii")
    except (EnvhistError, OSError):
        return ""


def open_prompt(history: EnvHistory, sealed: str) -> bytes:
    """The prompt that `seal_prompt` sealed; empty if it cannot be opened."""
    from git_envhist.capture.seal import unseal  # loaded late: likewise

    try:
        return unseal(history.keys.get, PROMPT.encode(), SEALED_AS, b64decode(sealed)) if sealed else b""
    except (EnvhistError, OSError, ValueError):
        return b""
