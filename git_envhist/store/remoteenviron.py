"""The environment of a git that talks to a remote: the user's transport settings, and the user of an address.

An address may hold a password. It is in no file of ours and in no message; git is told in its environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from git_envhist.model.sharing import without_password
from git_envhist.store.asconfigured import Config
from git_envhist.store.git import Git

TRANSPORT = re.compile(r"(?:http|credential|url|protocol|ssh)\.|core\.(?:sshcommand|askpass|gitproxy)$")
"""What the configuration of one repository says of how others are reached."""


def environment_of(git: Git, environ: Mapping[str, str], config: Config) -> dict[bytes, bytes]:
    environment = dict(git.environment)
    # Elsewhere nothing may go out on the network; here the user's own rules hold, or git's.
    for name in ("GIT_ALLOW_PROTOCOL", "GIT_TERMINAL_PROMPT"):
        environment.pop(name.encode(), None)
        if name in environ:
            environment[name.encode()] = os.fsencode(environ[name])
    words = [
        # A git before 2.31 reads the first form alone, which has no "=" in the key.
        _quoted(f"{key}={value}") if "=" not in key else f"{_quoted(key)}={_quoted(value)}"
        for key, value in config
        if value is not None and TRANSPORT.match(key)
    ]
    if words:
        before = os.fsdecode(environment.get(b"GIT_CONFIG_PARAMETERS", b""))
        environment[b"GIT_CONFIG_PARAMETERS"] = os.fsencode(f"{' '.join(words)} {before}".strip())
    return environment


def user_of(url: str) -> Config:
    """Return the configuration that gives an address its user and password again, which our files do not hold."""
    shown = without_password(url)
    return ((f"url.{url}.insteadOf", shown),) if url != shown else ()


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''").replace("!", "'\\!'") + "'"
