"""`git envlog observe`: record a checkpoint that a platform made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from git_envhist.cli.command import Session, command
from git_envhist.cli.formats import FormatContext, format_date
from git_envhist.cli.json_values import SCHEMA, observed_json
from git_envhist.cli.parser import argument, option
from git_envhist.errors import UsageError
from git_envhist.history.tasks_and_effects import observed_of
from git_envhist.history.times import read_time_span
from git_envhist.model import ObservedCheckpoint, Snapshot
from git_envhist.printable_text import escape
from git_envhist.tracking.effects import ListedCheckpoint, read_time

NO_INTENT = "no intent recorded"


@command(
    "observe",
    "git envlog observe [--list] [<id> [--at <time>] [-m <comment>] [--source <platform>]]",
    writes=True,
)
@argument("external_id", metavar="<id>")
@option("--at", "at", metavar="<time>", help="when the platform made it (now)")
@option("-m", "--message", "comment", metavar="<comment>", help="the comment of the platform")
@option("--source", metavar="<platform>", help="name of the platform")
@option("--list", "listed", is_flag=True, help="list recorded checkpoints; do not ask the platform")
def observe(session: Session, external_id: str | None, listed: bool, **text: str | None) -> None:
    """Record a checkpoint that your platform made. Without an id, record all that envhist.platformList lists."""
    session.no_paths()
    observed = session.history.observed
    if external_id is None and any(text.values()):
        raise UsageError("no checkpoint given", hint="git envlog observe <id> --at <time>")
    if listed:
        _print_result(session, observed.all(), "no checkpoints of the platform are recorded")
    elif external_id is None:
        _print_result(session, observed.look(), "nothing new: all checkpoints of the platform are recorded")
    else:
        at = _parsed_time(text["at"], session.history.now)
        found = observed.note(
            [ListedCheckpoint(external_id, at, text["comment"] or "")], text["source"] or ""
        )
        session.done("the checkpoint is recorded")
        _print_result(session, found, f"'{escape(external_id)}' is recorded already")


def _parsed_time(text: str | None, now: datetime) -> datetime:
    if text is None:
        return now
    return read_time(text) or read_time_span(text, now).start.astimezone(now.tzinfo)


def _print_result(session: Session, found: Sequence[ObservedCheckpoint], nothing: str) -> None:
    if session.json:
        session.print_json({"schema": SCHEMA, "observed": [observed_json(one) for one in found]})
        return
    for one in found:
        session.line(observed_line(one, lambda at: format_date(at, "iso", session.history.now)))
    if not found:
        session.line(nothing)


def observed_line(one: ObservedCheckpoint, shown: Callable[[datetime], str]) -> str:
    """Return `v7  observed: made 2026-11-18 10:12, found 10:20, no intent recorded`."""
    comment = f"  ({escape(one.comment)})" if one.comment else ""
    by = f" by {escape(one.source)}" if one.source else ""
    times = f"made {shown(one.taken_at)}{by}, found {shown(one.at)}"
    return f"{escape(one.external_id)}  observed: {times}, {NO_INTENT}{comment}"


def below_observed(line: str, snapshot: Snapshot, context: FormatContext) -> str:
    """Return the line of a snapshot, with the checkpoints below it that were found while it was the newest."""
    style = context.date or "iso"
    lines = [
        observed_line(one, lambda at: format_date(at, style, context.now)) for one in observed_of((snapshot,))
    ]
    return "\n".join([*(f"  {one}" for one in reversed(lines)), line])


def observed_details(session: Session, one: ObservedCheckpoint) -> Iterator[str]:
    """Return the lines with everything known about a checkpoint."""

    def time(at: datetime) -> str:
        return format_date(at, "default", session.history.now)

    yield session.paint("id", f"observed {escape(one.external_id)}")
    if one.source:
        yield f"Platform:  {escape(one.source)}"
    yield f"Made:      {time(one.taken_at)}"
    yield f"Found:     {time(one.at)}"
    yield f"Newest:    {one.snapshot_id or ''}"
    yield ""
    yield f"    ({NO_INTENT})"
    if one.comment:
        yield f"    {escape(one.comment)}"
