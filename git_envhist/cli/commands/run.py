"""`git envlog run`: run a command between two snapshots, with its own output and status."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from git_envhist.cli.command import Session, command
from git_envhist.cli.commands.capture import captured_lines, report_lock_holder, warn_of_missing
from git_envhist.cli.errors import print_error_line, warn
from git_envhist.cli.json_values import PATHS_IN_LISTS, SCHEMA, Json, captured_json, snapshot_json
from git_envhist.cli.parser import message, option
from git_envhist.cli.progress import shown_progress
from git_envhist.cli.views.details import make_check_listener, read_details, verdict_line, warn_of_verdict
from git_envhist.errors import UsageError
from git_envhist.integrations.run_with_snapshots import ERR, OUT, run_passing_output, run_with_snapshots
from git_envhist.model import CaptureResult, RunResult

if TYPE_CHECKING:
    from git_envhist.capture.pipeline import CaptureKeywords


@command("run", "git envlog run [<options>] [--] <command>...", writes=True, ends_in_command=True)
@message("why you run it (default: the command); repeatable")
@option("--verify", metavar="<command>", help="then run this check and store its result")
def run(session: Session, messages: tuple[str, ...], verify: str | None) -> int:
    """Take a snapshot, run a command, take another one. Store its output and exit with its status."""
    words = session.paths or ()
    if not words or not words[0]:
        raise UsageError("no command given", hint="git envlog run npm install")
    intent = "\n\n".join(messages) if messages else None
    through = partial(run_passing_output, out=ERR if session.json else OUT)
    ran = run_with_snapshots(lambda why, asked: _capture(session, why, asked), words, intent, verify, through)
    for warning in ran.warnings:
        warn(warning)
    if session.json:
        session.print_json(_ran_json(session, ran))
    elif ran.status:
        print_error_line(f" the command ended with status {ran.status}")
    return ran.status


def _capture(session: Session, intent: str, asked: CaptureKeywords) -> CaptureResult:
    """Take a snapshot; print its lines to standard error, because standard output belongs to the command."""
    with ExitStack() as shown:
        progress = shown.enter_context(shown_progress())

        def print_captured(captured: CaptureResult) -> None:
            # The output of a check is not mixed with a progress bar.
            shown.close()
            warn_of_missing(captured.missing)
            if captured.snapshot is not None and not session.json:
                for line in captured_lines(captured, session.history):
                    print_error_line(line)

        whole: CaptureKeywords = {
            **asked,
            "watching": make_check_listener(session),
            "captured": print_captured,
            "progress": progress,
            "waiting": lambda: report_lock_holder(session),
        }
        captured = session.history.capture(intent, **whole)
    for warning in captured.warnings:
        warn(warning)
    if captured.verdict is not None:
        warn_of_verdict(captured.verdict)
        print_error_line(f" {verdict_line(captured.verdict)}")
    return captured


def _ran_json(session: Session, ran: RunResult) -> Json:
    return {
        "schema": SCHEMA,
        "status": ran.status,
        "before": _moment_json(session, ran.before),
        "after": None if ran.after is None else _moment_json(session, ran.after),
        "warnings": list(ran.warnings),
    }


def _moment_json(session: Session, captured: CaptureResult) -> Json:
    snapshot = captured.snapshot
    if snapshot is None:
        return captured_json(captured, None)
    snapshot = session.history.resolve(snapshot.id)
    value = snapshot_json(snapshot, read_details(session.history, snapshot), most_paths=PATHS_IN_LISTS)
    return captured_json(captured, value)
