"""`git envlog install --watcher` and `uninstall --watcher`, and what `git envlog status` prints about the watcher."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from git_envhist.cli.command import Session
from git_envhist.cli.formats import count, size
from git_envhist.config import Settings
from git_envhist.errors import EnvhistError, NotARepository
from git_envhist.git.repository import Repository
from git_envhist.printable_text import format_duration
from git_envhist.watcher.client import exchange, socket_path
from git_envhist.watcher.inotify import read_limit, watch_budget
from git_envhist.watcher.start import (
    is_locked,
    read_failure,
    start,
    stop,
    wait_until_running,
    why_unavailable,
)

KEY = "envhist.watcher"
NEARLY = 0.8
"""The part of the watches of one watcher from which the line that raises the limit is printed."""
BUSY: Mapping[str, Any] = {"busy": True}
"""The status of a watcher that exists and does not answer."""
STOP = "  to stop it: git envlog uninstall --watcher"


class WatcherUnavailable(EnvhistError):
    """The watcher cannot watch this environment."""

    code = "watcher-unavailable"
    usual_hint = "captures look at everything, as without a watcher; limits: git envlog status"


def install_watcher(session: Session, *, everywhere: bool, dry_run: bool) -> None:
    """Set the key that makes captures start the watcher, and start it here."""
    if why := why_unavailable():
        raise WatcherUnavailable(why)
    repository = session.history.repository if not everywhere else _repository_if_any(session)
    scope = "--global" if everywhere else "--local"
    if dry_run:
        session.line(f"git config {scope} {KEY} true")
        return
    status: dict[str, Any] | None = None
    if repository is not None:
        start(repository)
        if not wait_until_running(repository.state):
            raise WatcherUnavailable(read_failure(repository.state) or "the watcher did not start")
        status = exchange(repository.state, {"op": "status"})
    _set_key(session, scope, "true")
    session.done("the watcher is installed")
    if session.json:
        session.print_json({"schema": 1, "watcher": status})
        return
    session.line("captures start the watcher from now on")
    for line in watcher_lines(status, session.history.settings) if repository is not None else ():
        session.line(line)


def uninstall_watcher(session: Session, *, everywhere: bool, dry_run: bool) -> None:
    """Remove the key, and stop the watcher here."""
    scope = "--global" if everywhere else "--local"
    repository = session.history.repository if not everywhere else _repository_if_any(session)
    is_on_elsewhere = not everywhere and _is_on_elsewhere(session)
    if dry_run:
        session.line(
            f"git config {scope} {KEY} false" if is_on_elsewhere else f"git config {scope} --unset {KEY}"
        )
        return
    _set_key(session, scope, None)
    if is_on_elsewhere:
        _set_key(session, scope, "false")
    stopped = repository is not None and stop(repository.state)
    session.done("the watcher is removed")
    if session.json:
        session.print_json({"schema": 1, "stopped": stopped})
    else:
        session.line("the watcher is stopped" if stopped else "no watcher was running here")


def _repository_if_any(session: Session) -> Repository | None:
    try:
        return session.history.repository
    except NotARepository:
        return None


def _is_on_elsewhere(session: Session) -> bool:
    """Return whether the user's or the system's configuration lets captures start a watcher here."""
    found = session.history.repository.git.try_run("config", "--show-scope", "--type=bool", "--get-all", KEY)
    rows = [line.split() for line in found.out.splitlines()]
    return [value for scope, value in rows if scope in (b"system", b"global")][-1:] == [b"true"]


def _set_key(session: Session, scope: str, value: str | None) -> None:
    git = session.history.repository.git
    if value is not None:
        git.run("config", scope, KEY, value)
    else:
        git.try_run("config", scope, "--unset-all", KEY)


def read_watcher(state: str) -> Mapping[str, Any] | None:
    """Return the status of the watcher of a working tree; `BUSY` if it does not answer, None if there is none."""
    found = exchange(state, {"op": "status"}) if os.path.exists(socket_path(state)) else None
    return BUSY if found is None and is_locked(state) else found


def watcher_lines(status: Mapping[str, Any] | None, settings: Settings, failure: str = "") -> Iterator[str]:
    """Yield lines about the watcher: whether it runs, its cost, its last verification, and limits that are near.

    `failure`: why it could not watch the environment.
    """
    if status is None:
        if settings.watcher and failure:
            yield f"the watcher cannot follow this environment: {failure}"
            yield from _limit_lines(math.inf if "inotify" in failure else 0)
            yield STOP.replace("stop it", "try no more")
        elif settings.watcher:
            yield "the watcher is not running; the next snapshot starts it"
        return
    if status == BUSY:
        yield "the watcher does not answer now: it is busy, starting or stopped, and snapshots look at everything"
        yield STOP
        return
    directories = int(status["directories"])
    yield (
        f"the watcher follows {count(directories, 'directory', 'directories')}: "
        f"{size(int(status['memory']))} of memory, "
        f"{format_duration(float(status['processor_seconds']))} of processor time "
        f"in {format_duration(float(status['seconds']))}"
    )
    if status["wrong"]:
        yield f"  it missed a change in '{status['wrong']}', so snapshots look at everything until it starts again"
    elif status["verified"]:
        yield "  its last comparison with everything found no difference"
    yield from _limit_lines(directories)
    yield STOP


def _limit_lines(directories: float) -> Iterator[str]:
    limit = read_limit("max_user_watches")
    if limit is not None and directories > NEARLY * watch_budget():
        yield (
            f"  a watcher may take half of the {limit:,} watches of a user; more: "
            f"sudo sysctl fs.inotify.max_user_watches={2 * limit}"
        )
