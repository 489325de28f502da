"""`git envlog verify`: runs a check, now or on an older moment; `git envlog bisect`: finds where it began to fail."""

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
from git_envhist.cli.views.details import verdict_line, watching
from git_envhist.cli.views.log import format_context
from git_envhist.errors import SnapshotNotFound, UsageError
from git_envhist.history.timeline import subject
from git_envhist.model import BisectResult, CheckResult, Snapshot, VerdictStatus
from git_envhist.text import escape, escape_invalid


@command("verify", "git envlog verify [<rev>] [-- <command>...]", writes=True)
@argument("revision")
def verify(session: Session, revision: str | None) -> int:
    """Run a check on the current files, or on an older snapshot in a temporary copy. Exit with its result."""
    try:
        checked = session.history.checks.run(revision or "now", _typed(session), watching(session))
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
    """Find the first snapshot where a check fails by binary search, and show what that snapshot changed."""
    watch = watching(session)._replace(trying=_say_what_is_tried, tried=_say_what_came)
    found = session.history.checks.bisect(good, bad, _typed(session), watch)
    if session.json:
        session.print_json(_bisected_json(found))
    else:
        _tell(session, found)
    return 0 if len(found.suspects) == 1 else NOT_JUDGED


def _explained(error: SnapshotNotFound, session: Session) -> SnapshotNotFound:
    """The same; where the word is a program's, it was meant to be run."""
    words = error.revision.split()
    if session.paths is not None or not words or shutil.which(words[0]) is None:
        return error
    hint = f"a check stands behind '--': git envlog verify -- {error.revision}"
    return SnapshotNotFound(error.revision, hint=hint)


def _typed(session: Session) -> str | None:
    """The command behind `--`: one word is a line for the shell, several are a program and its words."""
    if session.paths is None:
        return None
    typed = session.paths[0] if len(session.paths) == 1 else shlex.join(session.paths)
    if not typed.strip():
        raise UsageError("no command stands behind '--'", hint="git envlog verify -- npm test")
    return typed


def _checked_lines(checked: CheckResult, look: FormatContext) -> Iterator[str]:
    snapshot = checked.snapshot
    yield f"{verdict_line(checked.verdict)}  {snapshot.id[:7]} {look.words(snapshot)}"
    if checked.ran_at is None:
        yield f"  {escape(first_line(checked.verdict.output_tail))}"


def _tell(session: Session, found: BisectResult) -> None:
    look = format_context(session.history)
    if len(found.suspects) > 1:
        session.line(
            f"the first bad moment is one of these, some of which cannot be judged ({_tries(found)}):"
        )
        for suspect in found.suspects:
            session.line(f"  {_moment(suspect, look)}")
    else:
        session.line(f"first bad moment ({_tries(found)}):")
        session.line(f"  {_moment(found.bad, look)}")
    session.line("the last good one before:")
    session.line(f"  {_moment(found.good, look)}")
    session.line("what that step changed:")
    session.output.flush()
    _show_step(session, found)


def _show_step(session: Session, found: BisectResult) -> None:
    from git_envhist.cli.commands.diff import envdiff  # loaded late: only what was found is compared

    colour = [f"--color={session.colour}"] if session.colour else []
    words = ["--no-pager", *colour, found.good.id, found.bad.id]
    envdiff.invoke(words, "git-envdiff", None, session.output)


def _moment(snapshot: Snapshot, look: FormatContext) -> str:
    return f"{snapshot.id[:7]}  {look.time(snapshot)}  {look.words(snapshot)}"


def _tries(found: BisectResult) -> str:
    return f"{count(len(found.tried), 'check')} ran"


def _say_what_is_tried(snapshot: Snapshot, left: int, tries: int) -> None:
    told = f"{count(left, 'moment')} may be the first bad one, at most {count(tries, 'check')} to go"
    print_error_line(f"{told}: {snapshot.id[:7]} {escape(subject(snapshot.intent))}")


def _say_what_came(checked: CheckResult) -> None:
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
