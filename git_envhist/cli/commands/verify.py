"""`git envlog verify` and `bisect`: run a check, and find the first snapshot where it fails."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator

from git_envhist.checks.verdicts import NOT_JUDGED, answer_status
from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import print_error_line, warn
from git_envhist.cli.formats import FormatContext, count, first_line
from git_envhist.cli.json_values import SCHEMA, Json, verdict_json
from git_envhist.cli.parser import argument, option
from git_envhist.cli.views.details import make_check_listener, verdict_line
from git_envhist.cli.views.log import format_context
from git_envhist.errors import SnapshotNotFound, UsageError
from git_envhist.history.timeline import subject
from git_envhist.model import BisectResult, CheckResult, Snapshot, VerdictStatus
from git_envhist.printable_text import escape, escape_invalid


@command("verify", "git envlog verify [<rev>] [-- <command>...]", writes=True)
@argument("revision")
def verify(session: Session, revision: str | None) -> int:
    """Run a check on the current files, or on an older snapshot in a temporary copy. Exit with its result."""
    try:
        checked = session.history.checks.run(revision or "now", _typed(session), make_check_listener(session))
    except SnapshotNotFound as error:
        raise _explained(error, session) from error
    for warning in checked.warnings:
        warn(warning)
    if session.json:
        session.print_json({"schema": SCHEMA, **_checked_json(checked)})
    else:
        for line in _checked_lines(checked, format_context(session.history)):
            session.line(line)
    if checked.verdict.status is not VerdictStatus.PASS:
        from git_envhist.cli.errors import after_verdict  # loaded late: most checks pass

        after_verdict(session, checked.verdict)
    return answer_status(checked.verdict)


@command("bisect", "git envlog bisect [--good <rev>] [--bad <rev>] [-- <command>...]")
@option("--good", metavar="<rev>", help="a snapshot where the check passes (the newest such)")
@option("--bad", metavar="<rev>", help="a later snapshot where it fails (the newest)")
def bisect(session: Session, good: str | None, bad: str | None) -> int:
    """Find, by binary search, the first snapshot where a check fails, and show what it changed."""
    watch = make_check_listener(session)._replace(trying=_print_candidate, tried=_print_checked)
    found = session.history.checks.bisect(good, bad, _typed(session), watch)
    if session.json:
        session.print_json(_bisected_json(found))
    else:
        _print_result(session, found)
    return 0 if len(found.suspects) == 1 else NOT_JUDGED


def _explained(error: SnapshotNotFound, session: Session) -> SnapshotNotFound:
    """Return the error with another hint if the word is a program that was probably meant to be run."""
    words = error.revision.split()
    if session.paths is not None or not words or shutil.which(words[0]) is None:
        return error
    hint = f"a check goes after '--': git envlog verify -- {error.revision}"
    return SnapshotNotFound(error.revision, hint=hint)


def _typed(session: Session) -> str | None:
    """Return the command after `--`: one word is a line for the shell, several are a program and its arguments."""
    if session.paths is None:
        return None
    typed = session.paths[0] if len(session.paths) == 1 else shlex.join(session.paths)
    if not typed.strip():
        raise UsageError("no command after '--'", hint="git envlog verify -- npm test")
    return typed


def _checked_lines(checked: CheckResult, context: FormatContext) -> Iterator[str]:
    snapshot = checked.snapshot
    yield f"{verdict_line(checked.verdict)}  {snapshot.id[:7]} {context.words(snapshot)}"
    if checked.ran_at is None:
        yield f"  {escape(first_line(checked.verdict.output_tail))}"


def _print_result(session: Session, found: BisectResult) -> None:
    context = format_context(session.history)
    if len(found.suspects) > 1:
        session.line(
            f"the first failing snapshot is one of these; some could not be checked ({_tries(found)}):"
        )
        for suspect in found.suspects:
            session.line(f"  {_snapshot_line(suspect, context)}")
    else:
        session.line(f"first failing snapshot ({_tries(found)}):")
        session.line(f"  {_snapshot_line(found.bad, context)}")
    session.line("last passing snapshot before it:")
    session.line(f"  {_snapshot_line(found.good, context)}")
    session.line("what it changed:")
    session.output.flush()
    _show_step(session, found)


def _show_step(session: Session, found: BisectResult) -> None:
    from git_envhist.cli.commands.diff import envdiff  # loaded late: only a result is compared

    colour = [f"--color={session.colour}"] if session.colour else []
    words = ["--no-pager", *colour, found.good.id, found.bad.id]
    envdiff.invoke(words, "git-envdiff", None, session.output)


def _snapshot_line(snapshot: Snapshot, context: FormatContext) -> str:
    return f"{snapshot.id[:7]}  {context.time(snapshot)}  {context.words(snapshot)}"


def _tries(found: BisectResult) -> str:
    return f"{count(len(found.tried), 'check')} ran" if found.tried else "from stored results"


def _print_candidate(snapshot: Snapshot, left: int, tries: int) -> None:
    progress = f"{count(left, 'candidate')} left, at most {count(tries, 'check')} to run"
    print_error_line(f"{progress}: {snapshot.id[:7]} {escape(subject(snapshot.intent))}")


def _print_checked(checked: CheckResult) -> None:
    print_error_line(f"  {verdict_line(checked.verdict)}")
    if checked.ran_at is None:
        print_error_line(f"  {escape(first_line(checked.verdict.output_tail))}")
    for warning in checked.warnings:
        warn(warning)


def _checked_json(checked: CheckResult) -> Json:
    return {
        "id": checked.snapshot.id,
        "verify": verdict_json(checked.verdict),
        "ran_at": checked.ran_at and escape_invalid(checked.ran_at),
        "warnings": [escape_invalid(warning) for warning in checked.warnings],
    }


def _bisected_json(found: BisectResult) -> Json:
    return {
        "schema": SCHEMA,
        "command": escape_invalid(found.command),
        "good": found.good.id,
        "bad": found.bad.id,
        "suspects": [suspect.id for suspect in found.suspects],
        "tried": [_checked_json(checked) for checked in found.tried],
    }
