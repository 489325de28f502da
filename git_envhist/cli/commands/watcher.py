"""`git envlog install --watcher` and `uninstall --watcher`, and what `git envlog status` prints about the watcher."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from git_envhist.cli.command import Session
from git_envhist.cli.formats import size
from git_envhist.config import Settings
from git_envhist.errors import EnvhistError, NotARepository
from git_envhist.git.repository import Repository
from git_envhist.printable_text import format_duration
from git_envhist.watcher.client import exchange, socket_path
from git_envhist.watcher.inotify import read_limit
from git_envhist.watcher.start import may_run, read_failure, start, stop, wait_until_running

KEY = "envhist.watcher"
NEARLY = 0.8
"""The part of the limit of watches from which the line that raises it is printed."""


class WatcherUnavailable(EnvhistError):
    """The watcher cannot watch this environment."""

    code = "watcher-unavailable"
    usual_hint = "captures look at everything, as without a watcher; limits: git envlog status"


def install_watcher(session: Session, *, everywhere: bool, dry_run: bool) -> None:
    """Set the key that makes captures start the watcher, and start it here."""
    if not may_run():
        raise WatcherUnavailable("this system has no inotify")
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
    if dry_run:
        session.line(f"git config {scope} --unset {KEY}")
        return
    _set_key(session, scope, None)
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


def _set_key(session: Session, scope: str, value: str | None) -> None:
    git = session.history.repository.git
    if value is not None:
        git.run("config", scope, KEY, value)
    else:
        git.try_run("config", scope, "--unset-all", KEY)


def read_watcher(state: str) -> dict[str, Any] | None:
    """Return the status of the watcher of a working tree; None if none answers."""
    return exchange(state, {"op": "status"}) if os.path.exists(socket_path(state)) else None


def watcher_lines(status: Mapping[str, Any] | None, settings: Settings) -> Iterator[str]:
    """Yield lines about the watcher: whether it runs, its cost, its last verification, and limits that are near."""
    if status is None:
        if settings.watcher:
            yield "the watcher is not running; the next snapshot starts it"
        return
    directories = int(status["directories"])
    yield (
        f"the watcher follows {directories:,} directories: {size(int(status['memory']))} of memory, "
        f"{format_duration(float(status['processor_seconds']))} of processor time "
        f"in {format_duration(float(status['seconds']))}"
    )
    if status["wrong"]:
        yield f"  it missed a change in '{status['wrong']}', so snapshots look at everything until it starts again"
    elif status["verified"]:
        yield "  its last comparison with everything found no difference"
    yield from _limit_lines(directories)


def _limit_lines(directories: int) -> Iterator[str]:
    limit = read_limit("max_user_watches")
    if limit is not None and directories > NEARLY * limit:
        yield (
            f"  {directories:,} of {limit:,} watches are in use; more: "
            f"sudo sysctl fs.inotify.max_user_watches={2 * limit}"
        )
