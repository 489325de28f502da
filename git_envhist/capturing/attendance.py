"""Whether a person is present, and what a hook or an agent may do without one.

Hooks and the server for agents set GIT_ENVHIST_UNATTENDED for all that they run. Without a person, a command from git's
configuration runs only if a person ran exactly this command for this repository before. The configuration itself proves
nothing: an agent can write it, and a repository inside a clone or an archive brings its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from git_envhist.capturing.identity import AGENT
from git_envhist.errors import EnvhistError
from git_envhist.opening import own_data
from git_envhist.store.trusted import TrustedList

UNATTENDED = "GIT_ENVHIST_UNATTENDED"
AGENT_VARIABLES = (
    AGENT,
    "CLAUDECODE",
    "CODEX_SANDBOX",
    "CODEX_THREAD_ID",
    "GEMINI_CLI",
    "CURSOR_AGENT",
    "AI_AGENT",
)
"""Variables of the shells that agents use: what runs there was typed by no person."""
NOT_APPROVED = "no person ran this command here before, and a hook or an agent runs no other"


def is_unattended(environ: Mapping[str, str]) -> bool:
    """Whether a hook or the server for agents runs this program."""
    return bool(environ.get(UNATTENDED))


def is_person(environ: Mapping[str, str]) -> bool:
    """Whether a person, or a program of theirs, runs this program."""
    return not is_unattended(environ) and not any(environ.get(name) for name in AGENT_VARIABLES)


def trusted_list(environ: Mapping[str, str]) -> TrustedList:
    """The private list of this user."""
    return TrustedList(own_data(environ))


def may_run(environ: Mapping[str, str], common_dir: str, command: str) -> bool:
    """Whether a command from the configuration, or recorded in the repository, may run now."""
    return not is_unattended(environ) or trusted_list(environ).has_command(common_dir, command)


def approve(environ: Mapping[str, str], common_dir: str, command: str) -> None:
    """Remember that a person ran a command; a list that cannot be written approves nothing."""
    if is_person(environ):
        with suppress(EnvhistError, OSError):
            trusted_list(environ).add_command(common_dir, command)


def name_repository(environ: Mapping[str, str], common_dir: str) -> None:
    """Remember that a person captured here: hooks installed for every repository may capture here, too."""
    if is_person(environ):
        with suppress(EnvhistError, OSError):
            trusted_list(environ).add_repository(common_dir)
