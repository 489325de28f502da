"""`git envlog watch`: take a snapshot after each change."""

from __future__ import annotations

import sys

from git_envhist.api import EnvHistory
from git_envhist.cli.command import Session, command
from git_envhist.cli.commands.capture import captured_lines, warn_of_missing
from git_envhist.cli.errors import print_error_line, warn
from git_envhist.cli.json_values import PATHS_IN_LISTS, captured_json, snapshot_json
from git_envhist.cli.parser import option
from git_envhist.cli.views.details import read_details
from git_envhist.errors import UsageError
from git_envhist.integrations.watch import SETTLE, WatchCallbacks, watch
from git_envhist.model import CaptureResult, Trigger
from git_envhist.printable_text import escape


@command("watch", "git envlog watch [<options>]", writes=True)
@option("--settle", metavar="<seconds>", help="time without changes before a snapshot is taken (2)")
def watch_command(session: Session, settle: str | None) -> None:
    """Take a snapshot after each change, once no more changes follow. Runs until stopped."""
    session.no_paths()
    started = False

    def print_captured(captured: CaptureResult) -> None:
        nonlocal started
        _print_result(session, captured)
        if not started and not session.json and sys.stderr.isatty():
            where = escape(session.history.repository.root)
            print_error_line(f"watching '{where}': a snapshot is taken after each change; to stop: Ctrl-C")
        started = True

    callbacks = WatchCallbacks(print_captured, warn)

    def open_history() -> EnvHistory:
        # This process has one thread, so its workers can be forked.
        return EnvHistory.open(".", workers="fork", one_command=True)

    def capture() -> CaptureResult:
        return open_history().capture(trigger=Trigger.WATCH, if_changed=True)

    watch(open_history(), capture, callbacks, _seconds(settle))


def _seconds(text: str | None) -> float:
    try:
        settle = SETTLE if text is None else float(text)
    except ValueError:
        settle = 0.0
    if not 0.01 <= settle <= 3600:
        raise UsageError(f"not a number of seconds: '{text}'", hint="git envlog watch --settle 2")
    return settle


def _print_result(session: Session, captured: CaptureResult) -> None:
    for warning in captured.warnings:
        warn(warning)
    if captured.snapshot is None:
        return
    warn_of_missing(captured.missing)
    if session.json:
        history = session.history
        history.refresh()
        snapshot = history.resolve(captured.snapshot.id)
        text = snapshot_json(snapshot, read_details(history, snapshot), most_paths=PATHS_IN_LISTS)
        session.print_json(captured_json(captured, text))
    else:
        for line in captured_lines(captured, session.history):
            session.line(line)
    session.output.flush()
