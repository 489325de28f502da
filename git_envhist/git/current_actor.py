"""git's configuration, and the identity and time of a snapshot.

The identity is git's own if one is configured; otherwise it is derived from the login and the host name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from git_envhist.config import Settings
from git_envhist.errors import Damaged, EnvhistError
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass, pattern, replace
from git_envhist.model import Actor, AgentName

# The local time zone with its history: the offset of a past time is the one that was valid then.

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class LocalZone(tzinfo):
    """The zone of TZ or the system; each time has its own offset, not today's."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else _offset_at(dt)

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else _as_local(dt).tzname()

    def fromutc(self, dt: datetime) -> datetime:
        local = _localized(dt.replace(tzinfo=UTC))
        wall = local.replace(tzinfo=self, fold=0)
        # When clocks go back, one hour occurs twice, with two offsets; fold=1 selects the second.
        return wall if self.utcoffset(wall) == local.utcoffset() else wall.replace(fold=1)


def _offset_at(dt: datetime) -> timedelta:
    """Return the UTC offset of a local time.

    When clocks go forward, some local times do not occur. For these, `fold` selects the offset before or after the
    change. `astimezone` is not used: its result for such times differs between versions of Python.
    """
    wall = dt.replace(tzinfo=None, microsecond=0)
    try:
        offset = wall.replace(tzinfo=UTC) - (EPOCH + timedelta(seconds=int(wall.timestamp())))
    except (ValueError, OverflowError, OSError):
        return timedelta(0)
    return offset if abs(offset) < DAY else timedelta(0)


def _as_local(wall: datetime) -> datetime:
    return _localized(wall.replace(tzinfo=None))


def _localized(value: datetime) -> datetime:
    try:
        return value.astimezone()
    except ValueError:
        # TZ can set an offset of a day or more, which no place has.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# git strips these characters from names and addresses, because they would end them.
CRUD = str.maketrans("", "", "<>\n\r\0")


EDGES = " .,:;\"\\'" + "".join(map(chr, range(32)))


def identity_line(name: str, email: str, at: datetime) -> bytes:
    """Return an author line that git's fsck accepts, whatever the name contains."""
    offset = int((at.utcoffset() or timedelta()).total_seconds()) // 60
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    clean_name, clean_email = (text.translate(CRUD).strip(EDGES) for text in (name, email))
    text = f"{clean_name or 'unknown'} <{clean_email}> {int(at.timestamp())} {sign}{minutes // 60:02}{minutes % 60:02}"
    return text.encode("utf-8", "surrogateescape")


def time_of(identity: bytes) -> datetime:
    """Return the time at the end of an author line."""
    try:
        seconds, offset = identity.rsplit(b"> ", 1)[1].split(b" ")
        minutes = int(offset[1:3]) * 60 + int(offset[3:5])
        zone = (
            timezone(timedelta(minutes=-minutes if offset.startswith(b"-") else minutes)) if minutes else UTC
        )
        return datetime.fromtimestamp(int(seconds), zone)
    except (IndexError, ValueError, OverflowError, OSError):
        raise Damaged("a commit has no readable date") from None


DATE = "GIT_COMMITTER_DATE"
AGENT, AGENT_VERSION = "GIT_ENVHIST_AGENT", "GIT_ENVHIST_AGENT_VERSION"
"""The agent that one of our programs runs for."""
AGENT_SESSION, AGENT_DEFINITION = "GIT_ENVHIST_AGENT_SESSION", "GIT_ENVHIST_AGENT_DEFINITION"


@dataclass(frozen=True, slots=True)
class AgentShell:
    """The variables that an agent sets for the commands it runs."""

    name: str
    marks: tuple[str, ...]
    """Variables of which one is set."""
    session: tuple[str, ...] = ()
    """Variables with the id of the session; the first that is set counts."""
    version: str = ""
    """The variable with the agent's version."""


AGENT_SHELLS = (
    AgentShell("claude-code", ("CLAUDECODE",), ("CLAUDE_CODE_SESSION_ID",), "AI_AGENT"),
    AgentShell(
        "codex",
        ("CODEX_THREAD_ID", "CODEX_SANDBOX", "CODEX_CI"),
        ("CODEX_SESSION_ID", "CODEX_THREAD_ID"),
        "CODEX_VERSION",
    ),
    AgentShell("gemini", ("GEMINI_CLI",), ("GEMINI_SESSION_ID",)),
    AgentShell("copilot", ("COPILOT_CLI",), ("COPILOT_AGENT_SESSION_ID",), "COPILOT_CLI_BINARY_VERSION"),
    AgentShell("cursor", ("CURSOR_AGENT",)),
    AgentShell("opencode", ("OPENCODE",)),
)
"""The variables of each agent. If one agent runs another, the variables of both are set, and the first here counts."""
VERSION = pattern(r"[0-9][0-9A-Za-z.+-]{0,40}")
AI_AGENT = pattern(r"claude-code_([0-9]+(?:-[0-9]+){1,3})_[a-z]+")
"""The value of AI_AGENT in the shell and in the hooks of Claude Code, e.g. `claude-code_2-1-197_agent`."""
SESSION = pattern(r"[0-9A-Za-z_.:-]{1,100}")


def current_actor(settings: Settings, environ: Mapping[str, str]) -> Actor:
    """Return the person using this machine, as git would name them, and the agent if there is one."""
    name = environ.get("GIT_COMMITTER_NAME") or settings.user_name
    email = environ.get("GIT_COMMITTER_EMAIL") or settings.user_email or environ.get("EMAIL")
    person = Actor(name or _login(environ), email or f"{_login(environ)}@{os.uname().nodename}")
    agent = agent_of(environ)
    if agent is None:
        return person
    return replace(person, agent=agent.name, agent_version=agent.version, session=agent.session)


def agent_of(environ: Mapping[str, str]) -> AgentName | None:
    """Return the agent that this process runs for, named by our variables or by its own; None for a person."""
    if not environ.get(AGENT):
        return _agent_of_shell(environ)
    values = [environ.get(name) or None for name in (AGENT_VERSION, AGENT_SESSION, AGENT_DEFINITION)]
    return AgentName(environ[AGENT], *values)


def _agent_of_shell(environ: Mapping[str, str]) -> AgentName | None:
    shell = next((one for one in AGENT_SHELLS if any(environ.get(mark) for mark in one.marks)), None)
    if shell is None:
        return None
    session = next((environ[name] for name in shell.session if environ.get(name)), "")
    known = SESSION.fullmatch(session) is not None
    return AgentName(shell.name, version_of_agent(shell.name, environ), session if known else None)


def version_of_agent(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the version that an agent names in its variables, or None."""
    shell = next((one for one in AGENT_SHELLS if one.name == name), None)
    text = environ.get(shell.version, "") if shell else ""
    found = AI_AGENT.fullmatch(text)
    text = found[1].replace("-", ".") if found else text
    return text if VERSION.fullmatch(text) else None


def agent_variables(agent: AgentName) -> dict[str, str]:
    """Return the environment variables that name an agent."""
    values = {
        AGENT: agent.name,
        AGENT_VERSION: agent.version,
        AGENT_SESSION: agent.session,
        AGENT_DEFINITION: agent.definition,
    }
    return {name: value or "" for name, value in values.items()}


def _login(environ: Mapping[str, str]) -> str:
    if login := environ.get("LOGNAME") or environ.get("USER"):
        return login
    import pwd  # loaded late: a login sets one of the two

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"


def current_time(git: Git, environ: Mapping[str, str]) -> datetime:
    """Return the current time, or the time of GIT_COMMITTER_DATE in any format that git accepts."""
    text = environ.get(DATE)
    if not text:
        return datetime.fromtimestamp(int(time.time()), LocalZone())
    identity = {
        b"GIT_COMMITTER_NAME": b"x",
        b"GIT_COMMITTER_EMAIL": b"x",
        DATE.encode("ascii"): os.fsencode(text),
    }
    done = git.try_run("var", "GIT_COMMITTER_IDENT", environment=identity)
    if done.status != 0:
        raise EnvhistError(
            f"{DATE} is not a date: '{text}'", hint="use one of git's formats, e.g. 2026-11-18T10:27:00"
        )
    return time_of(done.out.strip())


def signature(actor: Actor, at: datetime) -> bytes:
    """Return the author line of a snapshot."""
    return identity_line(actor.name, actor.email, at)


SHOW_SOURCES = ("config", "--list", "-z", "--show-scope", "--show-origin")
"""Each item is preceded by its scope and its file."""


PRIVATE, GROUP, EVERYBODY = 0, 0o660, 0o664
