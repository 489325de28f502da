"""Read events from the hooks of coding agents, and decide which capture each one starts.

`read_event` validates the JSON of seven agents, with several spellings each, into one `AgentEvent`.
`advance_session` tracks the turn of a session: its number, its prompt, how many tools have changed something, and
which events were already seen. The last section reads spooled events and stores the session states, under one lock
and in order: the background process that a hook started, or a hook that waits, handles all events up to its own."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeGuard, TypeVar

from git_envhist.directories_of_others import refuse_others_directory
from git_envhist.disk import Durability, remove_if_present, replace_file, state_directory
from git_envhist.errors import EnvhistError, in_words
from git_envhist.git.current_actor import version_of_agent
from git_envhist.integrations.agents.tool_arguments import trace_context
from git_envhist.lazy import dataclass, replace
from git_envhist.locks import locked
from git_envhist.platform import START_TIME, open_file_only, process_fields
from git_envhist.secrets.masking import title_of

MAX_PROMPT = 65_536
MAX_WORD = 512
MAX_ROOTS = 32
READ_ONLY_TOOLS = frozenset((
    # Claude Code, and agents that use its tool names
    *("Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoWrite", "TodoRead", "ToolSearch"),
    *("AskUserQuestion", "ExitPlanMode", "EnterPlanMode", "BashOutput", "TaskOutput", "TaskList", "TaskGet", "Skill"),
    # Codex
    *("update_plan", "view_image", "web_search", "read_file", "list_dir", "grep_files"),
    # Gemini CLI
    *("read_many_files", "list_directory", "glob", "search_file_content", "grep_search", "google_web_search"),
    *("web_fetch", "write_todos", "ask_user", "get_internal_docs"),
    # Cursor
    *("SemanticSearch", "ReadLints", "TabRead", "List", "FetchRules"),
    # Copilot
    *("view", "grep", "rg", "report_intent", "update_todo", "fetch_copilot_cli_documentation", "read_bash"),
    # OpenCode
    *("read", "list", "webfetch", "websearch", "codesearch", "todowrite", "todoread", "skill", "question"),
    # Antigravity CLI
    *("view_file", "find_by_name", "search_web", "read_url_content", "view_content_chunk", "command_status"),
))  # fmt: skip
"""Tools that only read; a tool with any other name may change something."""
OWN_PREFIX = "environment_history_"
OWN_READ_ONLY_TOOLS = frozenset(
    (
        *("log", "show", "diff", "read_file", "why", "search", "resume"),
        *("plan_restore", "plan_undo", "plan_revert", "plan_merge", "plan_fork"),
    )
)
"""Tools of our own server that only read, without their prefix. An agent puts the name of the server before it."""
OWN_READ_ONLY = re.compile(rf"[0-9A-Za-z_:.-]*{OWN_PREFIX}(?:{'|'.join(sorted(OWN_READ_ONLY_TOOLS))})")

MACHINE_PROMPT = re.compile(
    r"\s*(?:<(?:task-notification|system-reminder|local-command-[a-z]+)\b|\[System: )"
)
"""The beginning of a prompt that the agent's own program wrote: a background task ended, a reminder."""
SESSION = re.compile(r"[0-9A-Za-z_-]{1,100}")
VERSION = re.compile(rb'"(?:version|cli_version|copilotVersion)"\s*:\s*"([0-9][0-9A-Za-z.+-]{0,40})"')


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """An event that an agent's hook reported."""

    kind: str
    """One of `prompt`, `before`, `done` (a tool ended), `after` and `end`: when in a turn the hook was called."""
    agent: str
    registered: str
    """The agent whose settings contain the hook; another agent may read them."""
    session: str
    directories: tuple[str, ...]
    """The directories that the event may concern: the project that the agent names, then its current directory."""
    turn: str | None
    """The agent's own id of the turn, if it has one."""
    prompt: str
    tool: str | None
    call: str | None
    """The agent's own id of the tool call."""
    arguments: str
    """The arguments of the tool."""
    transcript: str | None
    version: str | None
    cwd: str | None = None
    """The current directory of the tool."""
    more_roots: tuple[str, ...] = ()
    """Further directories of the workspace; their repositories are captured, too."""
    at: int | None = None
    """The agent's own time of the event, in milliseconds."""
    subagent: str | None = None
    """The agent's own id of the subagent that works, if one does."""
    subagent_type: str | None = None
    trace: str | None = None
    """The trace context of the agent (W3C traceparent)."""
    seen: float | None = None
    """The time at which the hook was called, in seconds; None: now."""
    continues: bool = False
    """True if the agent moved the command of the tool to the background (Claude Code)."""
    failed: bool | None = None
    """The result of a tool that ended; None if the agent does not report one."""
    again: bool = False
    """True if a process began to handle this event and was killed, or its capture failed."""

    @property
    def call_key(self) -> str:
        """The key that the events before and after one tool call have in common."""
        return self.call or hash_text(self.arguments)

    @property
    def modifies(self) -> bool:
        """Return whether the tool may change something."""
        if self.tool is None:
            return True
        return self.tool not in READ_ONLY_TOOLS and OWN_READ_ONLY.fullmatch(self.tool) is None

    @property
    def removes_worktree(self) -> bool:
        """Return whether the tool leaves the current worktree and removes it (Claude Code)."""
        return self.kind == "before" and self.tool == "ExitWorktree" and '"remove"' in self.arguments

    @property
    def begins_turn(self) -> bool:
        """Return whether a person wrote the prompt, not the agent's own program or the parent of a subagent."""
        return self.kind == "prompt" and self.subagent is None and not MACHINE_PROMPT.match(self.prompt)

    @property
    def key(self) -> str:
        """The key that two hook calls for the same tool call or prompt have in common."""
        if self.kind == "before":
            return f"before {self.call_key}"
        return f"prompt {self.turn or hash_text(self.prompt)}"

    @property
    def exact_key(self) -> str | None:
        """The key of an event whose time the agent sends: two calls of hooks with this key are one event."""
        return None if self.at is None else f"{self.at} {self.kind} {hash_text(self.arguments + self.prompt)}"


PROJECT_VARIABLES = {
    "claude-code": "CLAUDE_PROJECT_DIR",
    "gemini": "GEMINI_PROJECT_DIR",
    "cursor": "CURSOR_PROJECT_DIR",
    "copilot": "COPILOT_PROJECT_DIR",
}
"""The variable in which an agent names the project to its hooks. Codex has none: it sends `cwd`."""


def project_of(registered: str, environ: Mapping[str, str]) -> str:
    """Return the project directory that the agent names in a variable, or an empty string."""
    return environ.get(PROJECT_VARIABLES.get(registered, ""), "")


def read_event(
    registered: str, kind: str, data: bytes, environ: Mapping[str, str], project: str = ""
) -> AgentEvent | None:
    """Return the event, or None if the input cannot be understood; a tool with such input may change something."""
    try:
        value = json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        # The snapshot before a tool is made without its input.
        value = {} if kind == "before" else None
    if isinstance(value, dict) and registered == "antigravity":
        from git_envhist.integrations.agents.antigravity_events import (
            common_form,  # loaded late: one agent needs it
        )

        value = common_form(kind, value)
    if not isinstance(value, dict):
        return None
    agent = _agent(registered, value)
    copilot = _copilot_transcript(value, environ) if agent == "copilot" else None
    subagent = _word(value, "agent_id", "agentId")
    own = _path(value, "agent_transcript_path") if subagent else None
    return AgentEvent(
        kind=kind,
        agent=agent,
        registered=registered,
        # A subagent of Copilot has its own id as the session, and names the session of its parent.
        session=_word(value, "parentAgentId", "session_id", "sessionId", "conversation_id") or "",
        directories=_directories(value, project),
        turn=_word(value, "turn_id", "prompt_id", "generation_id"),
        prompt=_text(value, "prompt", MAX_PROMPT) or "",
        tool=_word(value, "tool_name", "toolName"),
        call=_word(value, "tool_use_id", "tool_call_id", "toolCallId"),
        arguments=_as_text(_first(value, "tool_input", "toolArgs")),
        transcript=own or _path(value, "transcript_path", "transcriptPath") or copilot,
        version=_word(value, "cursor_version", "agent_version") or version_of_agent(agent, environ),
        cwd=_path(value, "cwd"),
        more_roots=_more_roots(value),
        at=_milliseconds(value.get("timestamp")),
        subagent=subagent,
        subagent_type=_word(value, "agent_type", "agentType") if subagent else None,
        trace=trace_context(value, environ),
        continues=_is_in_background(value.get("tool_response")),
        failed=has_failed(value),
    )


FAILED_EVENT = "PostToolUseFailure"
RESULTS = {"success": False, "failure": True, "denied": True}
"""The results of a tool that Copilot CLI reports."""


def has_failed(value: Mapping[str, Any]) -> bool | None:
    """Return whether the tool of an event failed; None for an event that does not report it.

    Claude Code has an event of its own for a tool that failed, Gemini CLI an error in the response, Copilot CLI a
    result, and Codex the exit status of the command. A response that only says that something went wrong, such as
    `interrupted`, leaves the result unknown.
    """
    result, response = value.get("toolResult"), value.get("tool_response")
    if value.get("hook_event_name") == FAILED_EVENT:
        return True
    if isinstance(result, Mapping):
        kind = result.get("resultType")
        return RESULTS.get(kind) if isinstance(kind, str) else None
    if not isinstance(response, Mapping):
        return False if value.get("hook_event_name") == "PostToolUse" and response is not None else None
    status = response.get("exit_code")
    if response.get("error") or (isinstance(status, int) and status != 0):
        return True
    is_unclear = response.get("isError") or response.get("interrupted") or response.get("success") is False
    return None if is_unclear else False


def _is_in_background(response: object) -> bool:
    return isinstance(response, dict) and bool(response.get("backgroundTaskId"))


def version_in(transcript: bytes) -> str | None:
    """Return the version of the agent from its transcript."""
    found = VERSION.search(transcript, 0, 1 << 20)
    return found[1].decode("ascii") if found else None


def _agent(registered: str, value: dict[str, Any]) -> str:
    """Return the calling agent: Cursor and Copilot also read the settings of Claude Code."""
    if "cursor_version" in value or "conversation_id" in value:
        return "cursor"
    if registered == "claude-code" and "timestamp" in value:
        return "copilot"
    return registered


def _directories(value: dict[str, Any], project: str) -> tuple[str, ...]:
    # A tool may have changed `cwd` to a repository that came with a clone, so the other values come first.
    named = (project, *_roots(value)[:1], _path(value, "cwd"))
    return tuple(dict.fromkeys(each for each in named if _is_path(each)))


def _roots(value: dict[str, Any]) -> list[str]:
    roots = value.get("workspace_roots")
    return list(filter(_is_path, roots[:MAX_ROOTS])) if isinstance(roots, list) else []


def _more_roots(value: dict[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_roots(value)[1:]))


def _is_path(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value and len(value) < 4096


def _milliseconds(value: object) -> int | None:
    """Return a time that an agent sends, as a number or as text."""
    if isinstance(value, int):
        return value
    try:
        return round(datetime.fromisoformat(value).timestamp() * 1000) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def _first(value: dict[str, Any], *names: str) -> object:
    return next((value[name] for name in names if name in value), None)


def _word(value: dict[str, Any], *names: str) -> str | None:
    found = _first(value, *names)
    if not isinstance(found, str) or not found:
        return None
    return found[:MAX_WORD].encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _text(value: dict[str, Any], name: str, limit: int) -> str | None:
    found = value.get(name)
    return found[:limit].encode("utf-8", "replace").decode("utf-8") if isinstance(found, str) else None


def _path(value: dict[str, Any], *names: str) -> str | None:
    found = _first(value, *names)
    return found if _is_path(found) else None


def _copilot_transcript(value: dict[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the path of Copilot's transcript, which it sends only when a turn ends."""
    session = _word(value, "parentAgentId", "sessionId", "session_id") or ""
    home = environ.get("COPILOT_HOME") or os.path.join(environ.get("HOME", ""), ".copilot")
    if not home.startswith("/") or not SESSION.fullmatch(session):
        return None
    return os.path.join(home, "session-state", session, "events.jsonl")


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def hash_text(text: str) -> str:
    import hashlib  # loaded late: a tool that only reads does not need it, and it takes a fifth of the hook's time

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# The turns of one session. Two hooks may be called for one event: an agent may also read another agent's settings,
# and a hook may be installed for a repository and for the user. The second call has the same call id, the same time,
# or the same text from other settings.
#
# All worktrees of a repository share the state of a session: an agent and its subagents may change from one to
# another within a turn. The state lists the places in which something may have changed.

REPEAT_SECONDS = 60.0
"""Seconds after which the same text is a new event."""
MAX_SEEN = 64
MAX_PLACES = 64

Row = TypeVar("Row")
Seen = tuple[str, float, tuple[str, ...]]
"""The key of an event, the time of its last hook call, and the settings with these hooks."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of a session."""

    number: int = 0
    prompt: str = ""
    """The title of the prompt: short and masked."""
    sealed: str = ""
    """The whole prompt, sealed, as text; empty if it could not be sealed."""
    tools: int = 0
    """How many tools of this turn may have changed something."""
    seen: tuple[Seen, ...] = ()
    places: tuple[str, ...] = ()
    """The working trees in which tools of this turn may have changed something."""
    open: tuple[tuple[str, str], ...] = ()
    """(working tree, id of the subagent or empty): those changed since their last capture after a turn."""


@dataclass(frozen=True, slots=True)
class DueCapture:
    """A capture that an event starts."""

    event: AgentEvent
    turn: SessionState
    place: str = ""
    """The root of the working tree to capture."""


def advance_session(
    turn: SessionState, event: AgentEvent, *, now: float, every: int, places: Sequence[str] = ("",)
) -> tuple[SessionState, list[DueCapture]]:
    """Return the turn after an event in some working trees, and the captures that are due."""
    turn, repeated = _mark_seen(turn, event, now)
    if repeated:
        return turn, []
    if event.kind == "prompt":
        return _begin_turn(turn, event) if event.begins_turn else (turn, [])
    if event.kind == "done" or (event.kind == "after" and event.tool is not None and not event.modifies):
        return turn, []
    if event.kind != "before":
        return _end_work(turn, event, places)
    if not event.modifies:
        return turn, []
    due = [
        place
        for place in places
        if is_due(turn.tools + 1, every) or (turn.tools and place not in turn.places)
    ]
    changed = [(place, event.subagent or "") for place in places]
    turn = replace(
        turn,
        tools=turn.tools + 1,
        places=_newest((*turn.places, *places)),
        open=_newest((*turn.open, *changed)),
    )
    return turn, [DueCapture(event, turn, place) for place in due]


def _begin_turn(turn: SessionState, event: AgentEvent) -> tuple[SessionState, list[DueCapture]]:
    """Begin a turn; capture what a turn left that a person broke off, or that an error ended."""
    left = dict.fromkeys(place for place, _ in turn.open)
    new = replace(turn, number=turn.number + 1, prompt="", sealed="", tools=0, places=(), open=())
    return new, [DueCapture(event, turn, place) for place in left]


def _end_work(
    turn: SessionState, event: AgentEvent, places: Sequence[str]
) -> tuple[SessionState, list[DueCapture]]:
    """Capture after a tool, a subagent or a turn; the end of a subagent concerns the places that it changed."""
    own = [one for one in turn.open if event.subagent in (None, one[1])]
    left = tuple(one for one in turn.open if one not in own)
    changed = [place for place, _ in own]
    due = changed if event.subagent and changed else [*places, *changed]
    return replace(turn, open=left), [DueCapture(event, turn, place) for place in dict.fromkeys(due)]


def _newest(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(dict.fromkeys(rows))[-MAX_PLACES:]


def is_due(tools: int, every: int) -> bool:
    """Return whether a capture precedes this tool: every n-th tool including the first, or only the first if n is 0."""
    return (tools - 1) % every == 0 if every > 0 else tools == 1


def encode_session(turn: SessionState) -> dict[str, Any]:
    return {
        "number": turn.number,
        "prompt": turn.prompt,
        "sealed": turn.sealed,
        "tools": turn.tools,
        "seen": turn.seen,
        "places": turn.places,
        "open": turn.open,
    }


def decode_session(value: object) -> SessionState:
    """Return the turn that `encode_session` wrote; a new one for any other value."""
    try:
        if not isinstance(value, Mapping):
            return SessionState()
        seen = tuple((str(key), float(at), tuple(map(str, by))) for key, at, by in value["seen"])
        sealed = str(value.get("sealed", ""))
        places = tuple(map(str, value.get("places", ())))
        is_open = tuple((str(place), str(subagent)) for place, subagent in value.get("open") or ())
        return SessionState(
            int(value["number"]), str(value["prompt"]), sealed, int(value["tools"]), seen, places, is_open
        )
    except (KeyError, TypeError, ValueError):
        return SessionState()


def _mark_seen(turn: SessionState, event: AgentEvent, now: float) -> tuple[SessionState, bool]:
    """Return the turn with this event added to the seen ones, and whether it was seen before."""
    known = {each[0]: each for each in turn.seen}
    exact = event.exact_key
    if exact in known and not event.again:
        return turn, True
    if exact is not None:
        known[exact] = (exact, now, (event.registered,))
    if event.kind not in ("before", "prompt"):
        # Several subagents end within a turn; a second capture where nothing changed makes no snapshot.
        return replace(turn, seen=tuple(known.values())[-MAX_SEEN:]), False
    key = event.key
    named = event.call is not None if event.kind == "before" else event.turn is not None
    # An id names one event for the whole session; equal prompts without an id are one event only for a short time.
    by = known[key][2] if key in known and (named or now - known[key][1] < REPEAT_SECONDS) else ()
    repeated = bool(by) and (named or event.registered not in by)
    known.pop(key, None)
    known[key] = (key, now, (*by, event.registered) if repeated else (event.registered,))
    return replace(turn, seen=tuple(known.values())[-MAX_SEEN:]), repeated


# State between two hook calls: the spool of events, and the state of each session. Both are read and written under
# one lock, in the order of the events.

SPOOLED = ".told"
TAKEN = ".taken."
AGAIN = ".again"
LOCK = "lock"
SESSIONS = "sessions"
UNFINISHED = 3600
"""Seconds after which an unfinished spool file is deleted, because its writer no longer runs."""
KINDS = ("prompt", "done", "after", "end")
OLD = 7 * 86_400
"""Seconds after which a session that was never ended is deleted."""


@contextmanager
def spool_lock(spool: str) -> Iterator[None]:
    """Hold the lock of the spool."""
    refuse_others_directory(spool)
    state_directory(spool)
    with locked(os.path.join(spool, LOCK)):
        yield


def take_spooled(spool: str, environ: Mapping[str, str]) -> Iterator[tuple[AgentEvent, str]]:
    """Yield the events in the spool, oldest first, each with the file to remove after it was handled.

    The first line of each file is the project directory that the agent named, or empty. A file that is being handled
    has the id and the start time of the process in its name; if that process was killed, the next one handles the
    event again.
    """
    for path in _oldest_first(spool):
        name = os.path.basename(path)
        agent, _, rest = name.partition(".")
        kind = rest.partition(".")[0]
        taken = f"{path.partition(TAKEN)[0]}{TAKEN}{_process_mark(os.getpid())}"
        try:
            os.rename(path, taken)
            with open(taken, "rb", opener=open_file_only) as file:
                data, seen = file.read(), os.fstat(file.fileno()).st_mtime
        except OSError:
            continue
        project, _, message = data.partition(b"\n")
        event = read_event(agent, kind, message, environ, os.fsdecode(project)) if kind in KINDS else None
        if event is None:
            remove_if_present(taken)
        else:
            yield replace(event, seen=seen, again=TAKEN in name or AGAIN in name), taken


def put_back(taken: str) -> None:
    """Return an event to the spool, so that the next hook handles it once more; remove it if that was done before."""
    spooled = taken.partition(TAKEN)[0].removesuffix(SPOOLED)
    with suppress(OSError):
        if spooled.endswith(AGAIN):
            os.unlink(taken)
        else:
            os.rename(taken, f"{spooled}{AGAIN}{SPOOLED}")


def advance_stored_session(
    state: str, event: AgentEvent, places: Sequence[str], every: int, seal: Callable[[str], str]
) -> list[DueCapture]:
    """Advance the session of an event in some working trees, and return the captures that are due.

    `seal` returns the whole prompt as it may be stored: between two hooks no file contains a prompt in plain text.
    """
    path = _session_path(state_directory(os.path.join(state, SESSIONS)), event.session)
    before = _read(path)
    turn, jobs = advance_session(before, event, now=time.time(), every=every, places=places)
    if event.kind == "prompt":
        _delete_old_sessions(os.path.dirname(path))
    if turn.number != before.number:
        turn = replace(turn, prompt=title_of(event.prompt), sealed=seal(event.prompt))
    _write(path, turn)
    return jobs


def has_session(state: str, session: str) -> bool:
    """Return whether a hook was called in a session of the last days; older states are deleted."""
    return os.path.exists(_session_path(os.path.join(state, SESSIONS), session))


def read_session(state: str, session: str) -> SessionState:
    """Return the present state of a session."""
    return _read(_session_path(os.path.join(state, SESSIONS), session))


def session_lock(state: str, job: DueCapture) -> str:
    """Return the path of the lock under which a session captures a working tree."""
    name = hash_text(f"{job.event.session}\0{job.place}")
    return os.path.join(state, SESSIONS, f"{name}.lock")


def _session_path(directory: str, session: str) -> str:
    return os.path.join(directory, hash_text(session))


def _oldest_first(spool: str) -> list[str]:
    rows = []
    with suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.endswith(SPOOLED) or _is_left(entry.name):
                    rows.append((entry.stat().st_mtime_ns, entry.path))
                elif _is_abandoned(entry):
                    os.unlink(entry.path)
    return [path for _, path in sorted(rows)]


def _is_left(name: str) -> bool:
    """Return whether a process that was killed had taken this event."""
    _, taken, mark = name.partition(TAKEN)
    process, _, start = mark.partition("-")
    if not taken or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    # In another container the same id is another process, which started at another time.
    return bool(start) and _process_mark(int(process)) != mark


def _process_mark(process: int) -> str:
    """Return the id of a process and, if the system reports it, when it started."""
    try:
        return f"{process}-{int(process_fields(process)[START_TIME])}"
    except (OSError, ValueError, IndexError):
        return str(process)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Return whether a killed hook left this file, which may contain a prompt."""
    return entry.name != LOCK and entry.stat().st_mtime < time.time() - UNFINISHED


def _read(path: str) -> SessionState:
    try:
        with open(path, "rb", opener=open_file_only) as file:
            return decode_session(json.load(file))
    except (OSError, ValueError, RecursionError):
        return SessionState()


def _write(path: str, turn: SessionState) -> None:
    value = encode_session(turn)
    try:
        replace_file(path, json.dumps(value).encode("utf-8"), durability=Durability.NONE)
    except OSError as error:
        raise EnvhistError(f"cannot store the state of a session: {in_words(error)}") from error


def _delete_old_sessions(directory: str) -> None:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.stat().st_mtime < time.time() - OLD:
                    os.unlink(entry.path)
