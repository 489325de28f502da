"""Checks the environment that is here, as it is."""

from __future__ import annotations

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.errors import EnvhistError, in_words
from git_envhist.model import CheckResult, Snapshot
from git_envhist.verifying.recording import VerdictWriter
from git_envhist.verifying.runner import RunOptions, run
from git_envhist.verifying.turns import check_lock
from git_envhist.verifying.watching import CheckListener


def check_live(
    capturing: CapturePipeline,
    scribe: VerdictWriter,
    snapshot: Snapshot,
    command: str,
    watching: CheckListener,
) -> CheckResult:
    """Run a check on what is here, which is what the snapshot holds, and say what it came to."""
    repository = capturing.repository
    with check_lock(repository, capturing.environ, watching.waiting):
        limit = capturing.settings.verify_timeout
        if watching.running is not None:
            watching.running(command)
        ended = run(command, RunOptions(repository.root, capturing.environ, limit, watching.through))
        after, warnings = content_now(capturing)
        verdict = scribe.verdict(command, ended, snapshot.content, after)
        warnings += scribe.record(snapshot, verdict, command)
    return CheckResult(snapshot, verdict, repository.root, tuple(warnings))


def content_now(capturing: CapturePipeline) -> tuple[str | None, list[str]]:
    """What `Env-Content` is of what is here now; None, and why, where that cannot be told."""
    try:
        with capturing.present() as held:
            return held.content, []
    except (EnvhistError, OSError) as error:
        return None, [f"whether the check changed the environment cannot be told: {in_words(error)}"]
