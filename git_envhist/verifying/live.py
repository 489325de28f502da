"""Checks the environment that is here, as it is."""

from __future__ import annotations

from git_envhist.capturing.capture import Capturing
from git_envhist.errors import EnvhistError, in_words
from git_envhist.model import Checked, Snapshot
from git_envhist.verifying.recording import Scribe
from git_envhist.verifying.runner import Manner, run
from git_envhist.verifying.turns import turn
from git_envhist.verifying.watching import Watching


def check_live(
    capturing: Capturing, scribe: Scribe, snapshot: Snapshot, command: str, watching: Watching
) -> Checked:
    """Run a check on what is here, which is what the snapshot holds, and say what it came to."""
    repository = capturing.repository
    with turn(repository, capturing.environ, watching.waiting):
        limit = capturing.settings.verify_timeout
        if watching.running is not None:
            watching.running(command)
        ended = run(command, Manner(repository.root, capturing.environ, limit, watching.through))
        after, warnings = content_now(capturing)
        verdict = scribe.verdict(command, ended, snapshot.content, after)
        warnings += scribe.record(snapshot, verdict, command)
    return Checked(snapshot, verdict, repository.root, tuple(warnings))


def content_now(capturing: Capturing) -> tuple[str | None, list[str]]:
    """What `Env-Content` is of what is here now; None, and why, where that cannot be told."""
    try:
        with capturing.present() as held:
            return held.content, []
    except (EnvhistError, OSError) as error:
        return None, [f"whether the check changed the environment cannot be told: {in_words(error)}"]
