"""Handle the hooks of coding agents: capture before a tool runs and after a turn ends.

A shim that agents call runs `git-envhist agent-hook`. It prints nothing and exits with 0, whatever happens. Before a
tool that may change files (`before`) a forked process captures, and the hook waits for it as long as the tool may be
delayed (`envhist.agentTimeout`); if the agent ends the hook, the capture continues. All other events are spooled by the
shim and handled in the background (`spooled`), before the end of a session (`ended`), or before the end of a turn if
the end of the agent would end the background process too (`finished`). A snapshot has the prompt as intent, and the
prompt and the transcript as attachments. The result of each capture is a line for `git envlog status`.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from git_envhist.api import EnvHistory
from git_envhist.capture.tool_calls import FileWrite, OpenCall, ToolCalls
from git_envhist.consent import NOT_APPROVED, UNATTENDED, trusted_list
from git_envhist.discovery import OpenedRepository, open_repository
from git_envhist.disk import remove_if_present, state_directory
from git_envhist.errors import EnvhistError, NotARepository
from git_envhist.git.current_actor import current_actor
from git_envhist.git.repository import Repository
from git_envhist.handlers.agent_client import DONE, WAIT, await_done, read_input
from git_envhist.handlers.name_removed_worktree import name_removed_worktree
from git_envhist.history.timeline import FIRST_TOOL, SUBAGENT
from git_envhist.integrations.agents.events import (
    AgentEvent,
    DueCapture,
    advance_stored_session,
    project_of,
    put_back,
    read_event,
    read_session,
    session_lock,
    spool_lock,
    take_spooled,
    version_in,
)
from git_envhist.integrations.agents.last_events import _path, write_version
from git_envhist.integrations.agents.tool_arguments import read_arguments
from git_envhist.lazy import replace
from git_envhist.locks import locked
from git_envhist.model import Actor, CaptureResult, IntentSource, Snapshot, ToolCall, Trigger
from git_envhist.objects.trees import object_id
from git_envhist.platform import open_file_only, own_command
from git_envhist.secrets.rules import is_secret_name
from git_envhist.trace import trace

END_WAIT = 2.5
"""Seconds for which the end of a session waits for its last captures; agents grant such a hook 3."""
AFTER_WAIT = 8.0
"""Seconds for which the end of a turn waits where the end of the agent ends every process; agents grant 10."""
FIRST_INHERITED, MAX_DESCRIPTORS = 3, 1 << 16


def handle_agent_hook(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Handle `<shim> <agent> before|spooled|finished|ended`, or `<shim> <agent> wait <seconds> <project>`; return 0."""
    with suppress(Exception):
        shim, agent, kind, *more = words
        spool = os.path.join(os.path.dirname(shim), "spool")
        if kind == "before":
            event = read_event(agent, kind, read_input(0), environ, project_of(agent, environ))
            # A tool that only reads is not delayed.
            if event is not None and event.modifies:
                _delay(
                    lambda report: _work(spool, event, report, environ),
                    lambda agents: _wait_for_more(words, spool, agents),
                )
        elif kind == "spooled":
            _detach()
            _work(spool, None, _ignore, environ)
        elif kind == "finished":
            # The agent is the first process of a container or a service, or close to it.
            _delay(lambda report: _finish(spool, report, environ))
        elif kind == "ended":
            # The agent may be the first process of a container, which ends with it.
            _delay(lambda report: _end(spool, report, environ))
        elif kind == "wait":
            from git_envhist.handlers.agent_server import wait_for_events  # loaded late: one hook of many

            wait_for_events(
                spool,
                float(more[0]),
                environ,
                lambda: _load(more[1], environ),
                partial(_answer, spool, agent, environ),
            )
    return 0


def _load(project: str, environ: Mapping[str, str]) -> None:
    """Capture without a result, so that everything a capture loads or compiles late is there."""
    own = AgentHistories(environ).environ
    with suppress(EnvhistError, OSError):
        opened = open_repository(project, own)
        history = EnvHistory(opened, own, workers="here", directory=project, one_command=True)
        with history.present():
            open_prompt(history, seal_prompt(history, PROMPT))


def _finish(spool: str, report: Report, environ: Mapping[str, str]) -> AgentHistories:
    report(WAIT + b"%g\n" % AFTER_WAIT)
    return _work(spool, None, report, environ)


def _end(spool: str, report: Report, environ: Mapping[str, str]) -> AgentHistories:
    from git_envhist.handlers.agent_server import stop_waiting  # loaded late: once per session

    report(WAIT + b"%g\n" % END_WAIT)
    stop_waiting(spool, environ)
    return _work(spool, None, report, environ)


def _answer(
    spool: str, agent: str, environ: Mapping[str, str], data: bytes, descriptor: int, trace: str
) -> None:
    """Capture before a tool in a child of a waiting process; the trace context is of this call."""
    event = read_event(agent, "before", data, {**environ, "TRACEPARENT": trace}, project_of(agent, environ))
    if event is None or not event.modifies:
        _write(descriptor, DONE)
        return
    _work(spool, event, lambda message: _write(descriptor, message), environ)


def _wait_for_more(words: Sequence[str], spool: str, agents: AgentHistories) -> None:
    """Become a process that waits for the next tools of the agent, with the program loaded."""
    from git_envhist.handlers.agent_server import may_wait  # loaded late: the tool does not wait for it

    shim, agent, _ = words
    history = agents.latest
    if history is not None and history.settings.agent_idle > 0 and may_wait(spool):
        more = ("wait", f"{history.settings.agent_idle:g}", history.repository.root)
        command = [*own_command("envhist"), "agent-hook", shim, agent, *more]
        os.execv(command[0], command)


Report = Callable[[bytes], bool]
"""Report to the waiting hook; return whether it still waits."""


def _ignore(_data: bytes) -> bool:
    return True


def _delay(
    work: Callable[[Report], AgentHistories], then: Callable[[AgentHistories], None] | None = None
) -> None:
    """Run the work in a forked process, and wait for its end as long as a tool may be delayed.

    `then` runs in that process afterwards, with the result of the work; nobody waits for it.
    """
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            _detach(writing)
            result = work(lambda data: _write(writing, data))
            os.close(writing)
            if then is not None:
                then(result)
        finally:
            os._exit(0)
    os.close(writing)
    await_done(reading, lambda: os.read(reading, 64))


def _write(descriptor: int, data: bytes) -> bool:
    try:
        os.write(descriptor, data)
        return True
    except OSError:
        return False


def _detach(kept: int | None = None) -> None:
    """Detach from the caller's terminal, session and descriptors; keep the descriptor `kept`."""
    with suppress(OSError):
        os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with open(os.devnull, "rb+", buffering=0) as nothing:
        for descriptor in (0, 1, 2):
            os.dup2(nothing.fileno(), descriptor)
    # An agent may wait until every copy of one of its pipes is closed.
    last = FIRST_INHERITED if kept is None else kept
    os.closerange(FIRST_INHERITED, last)
    os.closerange(last + (kept is not None), MAX_DESCRIPTORS)


def _work(spool: str, event: AgentEvent | None, report: Report, environ: Mapping[str, str]) -> AgentHistories:
    """Handle an event and all spooled before it; return the histories that were opened."""
    agents = AgentHistories(environ)
    outcomes = HookOutcomes(agents)
    due = agents.due(spool, event, outcomes)
    if event is not None and agents.latest is not None:
        report(WAIT + b"%g\n" % agents.latest.settings.agent_timeout)
    last = next((job for job, _ in reversed(due) if job.event is event), None)
    # A tool does not wait for captures that are made again.
    later = [one for one in due if event is not None and one[0].event.again]
    for job, file in due:
        if event is None or not job.event.again:
            # The tool waits for the last of its captures.
            outcomes.run(job, report if job is last else None, file)
    if event is not None and event.kind == "before":
        agents.begin_call(event)
    report(DONE)
    if later:
        agents.tool_began()
        for job, file in later:
            outcomes.run(job, None, file)
    return agents


PROMPT = "prompt.txt"
"""The name of the attachment with the whole prompt."""
SEALED_AS = b"prompt"
LATE = (
    "the tool did not wait for the end of this capture (envhist.agentTimeout passed): "
    "some of its changes may be in this snapshot"
)
# Variables that git sets for its own commands; they do not name the repository of an agent.
GIT_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
)


class HooksNotApproved(EnvhistError):
    """No person installed an agent's hooks in this repository or captured it."""

    code = "not-named"


class AgentHistories:
    """The histories of the events of one process, each opened once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = {name: value for name, value in environ.items() if name not in GIT_VARIABLES}
        self.environ[UNATTENDED] = "1"
        self._trusted = trusted_list(environ)
        self._open: dict[str, EnvHistory] = {}
        self._tools: dict[str, tuple[int, int]] = {}
        """Of each session, the turn and its tools when its events were read."""
        self.latest: EnvHistory | None = None
        """The history that the last event concerns."""

    def histories(self, event: AgentEvent) -> list[EnvHistory]:
        """Return the histories of the working trees that an event concerns; raise `HooksNotApproved` if there is none.

        These are the project that the agent names or, if the tool works in another worktree of its repository, that
        worktree; and the further directories of the workspace.
        """
        found: dict[str, EnvHistory] = {}
        refused = None
        for places in (event.directories or (os.getcwd(),), *((root,) for root in event.more_roots)):
            try:
                history = self._history(places)
            except HooksNotApproved as error:
                refused = refused or error
                continue
            if not found and (worktree := other_worktree(history.repository, event.cwd)):
                history = self._history((worktree,))
            found.setdefault(history.repository.root, history)
        if not found and refused:
            raise refused
        return list(found.values())

    def history(self, event: AgentEvent) -> EnvHistory:
        """Return the history of the first working tree that an event concerns."""
        return self.histories(event)[0]

    def history_at(self, job: DueCapture) -> EnvHistory:
        """Return the history of the working tree that is captured."""
        return self._history((job.place,))

    def _history(self, places: Sequence[str]) -> EnvHistory:
        found = next((one for one in places if one in self._open), None)
        if found is not None:
            return self._open[found]
        found, opened = self._first_named(places)
        history = EnvHistory(opened, self.environ, workers="fork", directory=found, one_command=True)
        self._open[found] = self._open[history.repository.root] = history
        return history

    def _first_named(self, directories: Sequence[str]) -> tuple[str, OpenedRepository]:
        for directory in directories:
            try:
                opened = open_repository(directory, self.environ)
            except NotARepository:
                continue
            if self._trusted.has_repository(opened.repository.common_dir):
                return directory, opened
        raise HooksNotApproved(
            f"hooks do not capture the repository of '{directories[0]}': no person approved it",
            hint="git envlog install --agent <name>, or capture it once: git envlog capture",
        )

    def due(
        self, spool: str, event: AgentEvent | None, outcomes: HookOutcomes
    ) -> list[tuple[DueCapture, str | None]]:
        """Return the captures that are due, those of spooled events first, each with its file in the spool."""
        due: list[tuple[DueCapture, str | None]] = []
        with spool_lock(spool):
            events: list[tuple[AgentEvent, str | None]] = list(take_spooled(spool, self.environ))
            for each, file in [*events, *([(event, None)] if event else [])]:
                jobs = self._advance(each, outcomes)
                if file is not None and each.kind == "prompt" and not outcomes.has_failed(each):
                    # A prompt has changed the session already; taken again, it would begin another turn.
                    remove_if_present(file)
                    file = None
                elif file is not None and not jobs:
                    outcomes.release(each, file)
                due += [(job, file if job is jobs[-1] else None) for job in jobs]
            self._tools |= {job.event.session: self._started_tools(job) for job, _ in due}
        return due

    def capture(self, job: DueCapture, captured: Callable[[CaptureResult], None]) -> CaptureResult:
        """Capture for an event, if something changed."""
        history = self.history_at(job)
        with ExitStack() as turn:
            # Two processes of a session capture in turn: else a tool could begin after `_still_true` looked.
            turn.enter_context(locked(session_lock(self._state_of(job), job), reading=True))

            def release(result: CaptureResult) -> None:
                turn.close()
                captured(result)

            return self._capture(history, job, self._still_true(job), release)

    def _capture(
        self,
        history: EnvHistory,
        job: DueCapture,
        event: AgentEvent,
        captured: Callable[[CaptureResult], None],
    ) -> CaptureResult:
        transcript = read_transcript(event.transcript, history.settings.transcript_limit)
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
            meta=(
                ("agent-moment", kind),
                ("agent-turn", str(job.turn.number)),
                *(((FIRST_TOOL, "yes"),) if kind == "before" and job.turn.tools == 1 else ()),
                *(((SUBAGENT, event.subagent),) if event.subagent else ()),
                *((("agent-type", event.subagent_type),) if event.subagent_type else ()),
            ),
            captured=captured,
        )

    def _still_true(self, job: DueCapture) -> AgentEvent:
        """Return the event of a capture, without the tool and the subagent that ended if another tool began since.

        That tool may have changed something before the capture sees it.
        """
        event = job.event
        if event.kind == "before" or self._started_tools(job) == self._tools.get(event.session):
            return event
        return replace(event, tool=None, subagent=None, subagent_type=None)

    def tool_began(self) -> None:
        """Note that a tool runs: what a capture finds from now on may be its work."""
        self._tools.clear()

    def _started_tools(self, job: DueCapture) -> tuple[int, int]:
        """Return the number of the turn, and of its tools that were announced before they ran."""
        turn = read_session(self._state_of(job), job.event.session)
        return turn.number, turn.tools

    def _announce(
        self, event: AgentEvent, intent: str, histories: Sequence[EnvHistory], waiting: set[str]
    ) -> None:
        """Add the call of a tool to the lists of the working trees; it begins at once where no capture is due."""
        for history in histories:
            # The list describes the snapshot; no failure of it may prevent the snapshot.
            with _traced("cannot add a call of a tool"):
                calls = ToolCalls(history.repository.state)
                try:
                    calls.announce(open_call(event, intent, history.repository))
                except Exception:
                    calls.lose()
                    raise
                if history.repository.root not in waiting:
                    calls.begin(event.session, event.call_key, time.time())

    def _note_end(self, event: AgentEvent, histories: Sequence[EnvHistory]) -> None:
        """Record in the lists of the working trees which calls have ended, as far as an event shows it."""
        at = time.time() if event.seen is None else event.seen
        for history in histories:
            with _traced("cannot record the end of a call"):
                calls = ToolCalls(history.repository.state)
                if event.kind in ("done", "after") and event.tool is not None:
                    calls.end(
                        event.session, event.call_key, at, continues=event.continues, failed=event.failed
                    )
                elif event.kind == "end":
                    calls.leave(event.session, at, lambda _subagent: True)
                elif event.kind == "after" or event.begins_turn:
                    calls.leave(event.session, at, lambda subagent: subagent == event.subagent)

    def begin_call(self, event: AgentEvent) -> None:
        """Record that the tool of an event waits no longer."""
        with _traced("cannot record the beginning of a call"):
            for history in self.histories(event):
                ToolCalls(history.repository.state).begin(event.session, event.call_key, time.time())

    def _state_of(self, job: DueCapture) -> str:
        return os.path.join(self.history_at(job).repository.common_state, "agents")

    def note_late(self, job: DueCapture, snapshot: Snapshot) -> None:
        """Add a remark that the tool did not wait for the end of the capture."""
        self.history_at(job).note(LATE, snapshot)

    def _advance(self, event: AgentEvent, outcomes: HookOutcomes) -> list[DueCapture]:
        jobs: list[DueCapture] = []
        try:
            by_repository: dict[str, list[EnvHistory]] = {}
            for history in self.histories(event):
                self.latest = history
                if history.settings.enabled:
                    by_repository.setdefault(history.repository.common_state, []).append(history)
            for common_state, histories in by_repository.items():
                self._note_end(event, histories)
                places = [history.repository.root for history in histories]
                state, every = os.path.join(common_state, "agents"), histories[0].settings.agent_every
                due = advance_stored_session(state, event, places, every, partial(seal_prompt, histories[0]))
                jobs += due
                if event.kind == "before" and event.modifies:
                    intent = read_session(state, event.session).prompt
                    self._announce(event, intent, histories, {job.place for job in due})
            if event.kind == "prompt" and by_repository and not jobs:
                outcomes.received(event)
        except Exception as error:
            outcomes.failed(event, error)
        # A worktree in which the turn worked may have been removed since.
        return [job for job in jobs if os.path.isdir(job.place)]


@contextmanager
def _traced(text: str) -> Iterator[None]:
    """Write an error of the block as a trace line, and continue after the block."""
    try:
        yield
    except Exception as error:
        trace(f"{text}: {error}")


def other_worktree(repository: Repository, directory: str | None) -> str | None:
    """Return the root of another linked worktree of a repository that contains a directory, or None.

    git is not asked: the directory may be in a repository that came with a clone. A linked worktree has a file `.git`
    with the name of its git directory, and git's record there names this file.
    """
    top = os.path.realpath(directory) if directory else "/"
    while top != "/" and not os.path.lexists(os.path.join(top, ".git")):
        top = os.path.dirname(top)
    link = os.path.join(top, ".git")
    worktrees = os.path.join(os.path.realpath(repository.common_dir), "worktrees")
    with suppress(OSError, ValueError):
        git_dir = os.path.realpath(os.path.join(top, _first_line(link).removeprefix("gitdir: ")))
        named = os.path.join(git_dir, _first_line(os.path.join(git_dir, "gitdir")))
        is_linked = os.path.dirname(git_dir) == worktrees and os.path.realpath(named) == link
        if is_linked and git_dir != os.path.realpath(repository.git_dir):
            return top
    return None


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape", opener=open_file_only) as file:
        return file.read(4096).partition("\n")[0]


def actor_of(event: AgentEvent, person: Actor, transcript: bytes) -> Actor:
    """Return the actor of a capture: the agent, and its person."""
    return replace(
        person,
        agent=event.agent,
        agent_version=event.version or version_in(transcript),
        session=event.session or None,
        tool=event.tool,
    )


def open_call(event: AgentEvent, intent: str, repository: Repository) -> OpenCall:
    """Return the call of an event's tool as the list of a working tree keeps it."""
    arguments = read_arguments(event.tool, event.arguments, event.cwd)
    root = os.path.realpath(repository.root)
    inside = {path: found for path in arguments.paths if (found := _path_below(root, path)) is not None}
    call = ToolCall(
        tool=event.tool or "",
        agent=event.agent,
        session=event.session,
        id=event.call,
        subagent=event.subagent,
        subagent_type=event.subagent_type,
        intent=intent,
        command=arguments.command,
        paths=tuple(inside.values()),
        changes_only_paths=arguments.changes_only_paths,
        trace=event.trace,
        may_continue=arguments.may_continue,
    )
    writes = tuple(
        FileWrite(inside[write.path], _blob_id(write.before, repository), _blob_id(write.after, repository))
        for write in arguments.writes
        if write.path in inside and not is_secret_name(os.fsencode(inside[write.path]))
    )
    return OpenCall(event.call_key, call, time.time(), writes=writes)


def _path_below(root: str, path: str) -> str | None:
    """Return a path of the environment, the target of links; None if it is outside of the root."""
    found = os.path.realpath(path)
    return found[len(root) + 1 :] if found.startswith(root + "/") else None


def _blob_id(data: bytes | None, repository: Repository) -> str:
    return "" if data is None else object_id(b"blob", data, repository.object_format).hex()


def read_transcript(path: str | None, limit: int) -> bytes:
    """Return the agent's transcript, or its last whole lines within `limit` bytes if it is longer."""
    if path is None or not limit:
        return b""
    try:
        # Non-blocking: a path that an agent names may be a pipe.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                return b""
            if seen.st_size <= limit:
                return file.read(limit)
            file.seek(-limit, os.SEEK_END)
            return file.read(limit).partition(b"\n")[2]
    except OSError:
        return b""


def seal_prompt(history: EnvHistory, prompt: str) -> str:
    """Return the prompt sealed with the key of the history, as text; empty without a prompt or a key."""
    from git_envhist.secrets.seal import seal  # loaded late: most events have no prompt

    if not prompt.strip():
        return ""
    try:
        plain = prompt.encode("utf-8", "replace")
        return b64encode(seal(history.keys.current(), PROMPT.encode(), SEALED_AS, plain)).decode("ascii")
    except (EnvhistError, OSError):
        return ""


def open_prompt(history: EnvHistory, sealed: str) -> bytes:
    """Return the prompt that `seal_prompt` sealed; empty if it cannot be opened."""
    from git_envhist.secrets.seal import unseal  # loaded late: most events have no prompt

    try:
        return unseal(history.keys.get, PROMPT.encode(), SEALED_AS, b64decode(sealed)) if sealed else b""
    except (EnvhistError, OSError, ValueError):
        return b""


class HookOutcomes:
    """Run the captures of one process and write their results for `git envlog status`."""

    def __init__(self, agents: AgentHistories) -> None:
        self._agents = agents
        self._failed: list[AgentEvent] = []

    def has_failed(self, event: AgentEvent) -> bool:
        """Return whether the handling of an event failed in this process."""
        return any(one is event for one in self._failed)

    def release(self, event: AgentEvent, file: str) -> None:
        """Remove the file of a spooled event; keep it for the next hook if a capture for the event failed."""
        if self.has_failed(event):
            put_back(file)
        else:
            remove_if_present(file)

    def run(self, job: DueCapture, report: Report | None, file: str | None) -> None:
        """Capture for an event, and release its file in the spool."""
        self._capture(job, report)
        if file is not None:
            self.release(job.event, file)

    def _capture(self, job: DueCapture, report: Report | None) -> None:
        """Capture; report it to the waiting hook, or add a remark to the snapshot if the hook stopped waiting."""
        waited = []

        def captured_now(_captured: CaptureResult) -> None:
            # The name is written before the worktree is removed.
            if report is not None and not job.event.removes_worktree:
                self._agents.begin_call(job.event)
                waited.append(report(DONE))

        try:
            captured = self._agents.capture(job, captured_now)
            if job.event.removes_worktree:
                name_removed_worktree(self._agents.history_at(job), job.place, captured.snapshot)
            if captured.snapshot is not None and False in waited:
                self._agents.note_late(job, captured.snapshot)
            result = "captured" if captured.snapshot is not None else "nothing changed"
            why_not = next((f": {one}" for one in captured.warnings if NOT_APPROVED in one), "")
            history = self._agents.history_at(job)
            self._write(history, job.event, result + why_not)
            _keep_version(history, job.event, captured.snapshot)
        except Exception as error:
            self.failed(job.event, error)

    def received(self, event: AgentEvent) -> None:
        """Write that an event arrived that starts no capture."""
        self._write(self._agents.history(event), event, "received")

    def failed(self, event: AgentEvent, error: Exception) -> None:
        """Write why a capture failed; without a repository there is no place for it."""
        if not isinstance(error, HooksNotApproved):
            self._failed.append(event)
        with suppress(Exception):
            self._write(self._agents.history(event), event, f"failed: {error}")

    def _write(self, history: EnvHistory, event: AgentEvent, outcome: str) -> None:
        place = state_directory(os.path.join(history.repository.state, "agents"))
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        with open(
            _path(place, event.registered, event.kind), "w", encoding="utf-8", errors="replace"
        ) as file:
            file.write(f"{outcome} ({at})\n")


def _keep_version(history: EnvHistory, event: AgentEvent, snapshot: Snapshot | None) -> None:
    """Write the version of the agent, unless another agent reads its settings."""
    version = event.version if snapshot is None else snapshot.actor.agent_version
    if version and event.agent == event.registered:
        write_version(state_directory(os.path.join(history.repository.state, "agents")), event.agent, version)
