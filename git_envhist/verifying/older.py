"""Checks an older moment, in a throw-away environment of it."""

from __future__ import annotations

import os

from git_envhist.capturing.capture import Capturing
from git_envhist.errors import Refused
from git_envhist.model import Checked, Snapshot, VerdictStatus
from git_envhist.values import replace
from git_envhist.verifying.aside import Aside, Going, aside, original_place
from git_envhist.verifying.outcome import Ended
from git_envhist.verifying.recording import Scribe
from git_envhist.verifying.runner import Manner, run
from git_envhist.verifying.turns import turn
from git_envhist.verifying.watching import Watching

NOT_WHOLE = "\n(not all of the moment could be brought back: that it fails says nothing)\n"


def check_older(
    capturing: Capturing, scribe: Scribe, going: Going, snapshot: Snapshot, command: str, watching: Watching
) -> Checked:
    """Run a check on a moment, and say what it came to."""
    if not snapshot.trusted:
        raise Refused(
            f"no key that is here signed '{snapshot.id[:7]}': to check it is to run somebody else's programs",
            hint="look at it first: git envlog fork --allow-unsigned <directory> <rev>",
        )
    with turn(capturing.repository, capturing.environ, watching.waiting):
        original = original_place(capturing, snapshot)
        with aside(capturing, going, snapshot, original) as made:
            ended = _run(capturing, made, command, watching)
            whole, ran = made.is_whole, made.why_not is None
        verdict = scribe.verdict(command, ended, snapshot.content, None)
        if verdict.status is VerdictStatus.FAIL and not whole:
            tail = verdict.output_tail + NOT_WHOLE
            verdict = replace(verdict, status=VerdictStatus.ERROR, output_tail=tail)
        warnings = scribe.record(snapshot, verdict, command)
    return Checked(snapshot, verdict, made.seen_at if ran else None, tuple(warnings))


def _run(capturing: Capturing, made: Aside, command: str, watching: Watching) -> Ended:
    if made.why_not is not None:
        return Ended(tail=os.fsencode(f"{made.why_not}\n"))
    if watching.running is not None:
        watching.running(command)
    limit = capturing.settings.verify_timeout
    return run(command, Manner(made.seen_at, capturing.environ, limit, watching.through, made.words))
