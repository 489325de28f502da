"""Checks an older moment, in a throw-away environment of it."""

from __future__ import annotations

import os

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.errors import Refused
from git_envhist.model import CheckResult, Snapshot, VerdictStatus
from git_envhist.values import replace
from git_envhist.verifying.aside import Going, Sandbox, original_place, sandbox
from git_envhist.verifying.outcome import CommandExit
from git_envhist.verifying.recording import VerdictWriter
from git_envhist.verifying.runner import RunOptions, run
from git_envhist.verifying.turns import check_lock
from git_envhist.verifying.watching import CheckListener

NOT_WHOLE = "\n(not all of the moment could be brought back: that it fails says nothing)\n"


def check_older(
    capturing: CapturePipeline,
    scribe: VerdictWriter,
    going: Going,
    snapshot: Snapshot,
    command: str,
    watching: CheckListener,
) -> CheckResult:
    """Run a check on a moment, and say what it came to."""
    if not snapshot.trusted:
        raise Refused(
            f"no key that is here signed '{snapshot.id[:7]}': to check it is to run somebody else's programs",
            hint="look at it first: git envlog fork --allow-unsigned <directory> <rev>",
        )
    with check_lock(capturing.repository, capturing.environ, watching.waiting):
        original = original_place(capturing, snapshot)
        with sandbox(capturing, going, snapshot, original) as made:
            ended = _run(capturing, made, command, watching)
            whole, ran = made.is_whole, made.why_not is None
        verdict = scribe.verdict(command, ended, snapshot.content, None)
        if verdict.status is VerdictStatus.FAIL and not whole:
            tail = verdict.output_tail + NOT_WHOLE
            verdict = replace(verdict, status=VerdictStatus.ERROR, output_tail=tail)
        warnings = scribe.record(snapshot, verdict, command)
    return CheckResult(snapshot, verdict, made.seen_at if ran else None, tuple(warnings))


def _run(capturing: CapturePipeline, made: Sandbox, command: str, watching: CheckListener) -> CommandExit:
    if made.why_not is not None:
        return CommandExit(tail=os.fsencode(f"{made.why_not}\n"))
    if watching.running is not None:
        watching.running(command)
    limit = capturing.settings.verify_timeout
    return run(command, RunOptions(made.seen_at, capturing.environ, limit, watching.through, made.words))
