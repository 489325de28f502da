"""Who takes a snapshot, and when: git's identity where there is one, and something true where there is none."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import datetime

from git_envhist.capturing.zone import LocalZone
from git_envhist.errors import EnvhistError
from git_envhist.model import Actor, AgentName
from git_envhist.settings import Settings
from git_envhist.store.commits import identity_line, moment_of
from git_envhist.store.git import Git
from git_envhist.values import replace

DATE = "GIT_COMMITTER_DATE"
AGENT, AGENT_VERSION = "GIT_ENVHIST_AGENT", "GIT_ENVHIST_AGENT_VERSION"
"""The agent in whose name a program of ours is run."""
AGENT_SESSION, AGENT_DEFINITION = "GIT_ENVHIST_AGENT_SESSION", "GIT_ENVHIST_AGENT_DEFINITION"


def current_actor(settings: Settings, environ: Mapping[str, str]) -> Actor:
    """The person in front of this machine, as git would name them."""
    name = environ.get("GIT_COMMITTER_NAME") or settings.user_name
    email = environ.get("GIT_COMMITTER_EMAIL") or settings.user_email or environ.get("EMAIL")
    person = Actor(name or _login(environ), email or f"{_login(environ)}@{os.uname().nodename}")
    if not environ.get(AGENT):
        return person
    version, session = environ.get(AGENT_VERSION) or None, environ.get(AGENT_SESSION) or None
    return replace(person, agent=environ[AGENT], agent_version=version, session=session)


def agent_of(environ: Mapping[str, str]) -> AgentName | None:
    """The agent in whose name we are run; None where a person does."""
    if not environ.get(AGENT):
        return None
    told = [environ.get(name) or None for name in (AGENT_VERSION, AGENT_SESSION, AGENT_DEFINITION)]
    return AgentName(environ[AGENT], *told)


def agent_variables(agent: AgentName) -> dict[str, str]:
    """The same, as variables."""
    told = {
        AGENT: agent.name,
        AGENT_VERSION: agent.version,
        AGENT_SESSION: agent.session,
        AGENT_DEFINITION: agent.definition,
    }
    return {name: value or "" for name, value in told.items()}


def _login(environ: Mapping[str, str]) -> str:
    if told := environ.get("LOGNAME") or environ.get("USER"):
        return told
    import pwd  # loaded late: a login sets one of the two

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"


def current_time(git: Git, environ: Mapping[str, str]) -> datetime:
    """Now, or the moment that GIT_COMMITTER_DATE sets, in whatever spelling git takes there."""
    told = environ.get(DATE)
    if not told:
        return datetime.fromtimestamp(int(time.time()), LocalZone())
    identity = {
        b"GIT_COMMITTER_NAME": b"x",
        b"GIT_COMMITTER_EMAIL": b"x",
        DATE.encode("ascii"): os.fsencode(told),
    }
    done = git.try_run("var", "GIT_COMMITTER_IDENT", environment=identity)
    if done.status != 0:
        raise EnvhistError(
            f"{DATE} is no date: '{told}'", hint="git's own formats serve, e.g. 2026-11-18T10:27:00"
        )
    return moment_of(done.out.strip())


def signature(actor: Actor, at: datetime) -> bytes:
    """The author line of a snapshot."""
    return identity_line(actor.name, actor.email, at)
