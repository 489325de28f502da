"""`git envlog observe`: checkpoints of the platform below us that were made without us."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from git_envhist.cli.command import Session, command
from git_envhist.cli.dates import format_date
from git_envhist.cli.formats import FormatContext
from git_envhist.cli.jsonform import SCHEMA, observed_json
from git_envhist.cli.options import argument, option
from git_envhist.cli.terminal import escape
from git_envhist.doing.observing import ListedCheckpoint, read_time
from git_envhist.errors import UsageError
from git_envhist.history.doings import observed_of
from git_envhist.history.times import read_moment
from git_envhist.model import ObservedCheckpoint, Snapshot

NO_INTENT = "no intent recorded"


@command(
    "observe",
    "git envlog observe [--list] [<id> [--at <time>] [-m <comment>] [--by <platform>]]",
    writes=True,
)
@argument("external_id", metavar="<id>")
@option("--at", "at", metavar="<time>", help="when the platform made it; now by default")
@option("-m", "--message", "comment", metavar="<comment>", help="what the platform says of it")
@option("--by", "source", metavar="<platform>", help="which platform")
@option("--list", "listed", is_flag=True, help="those that are known, and ask nobody")
def observe(session: Session, external_id: str | None, listed: bool, **told: str | None) -> None:
    """Keeps a checkpoint that the platform made without us; without an id asks envhist.platformList for all of them."""
    session.no_paths()
    observed = session.history.observed
    if external_id is None and any(told.values()):
        raise UsageError("which checkpoint?", hint="git envlog observe <id> --at <time>")
    if listed:
        _tell(session, observed.all(), "no checkpoint of the platform is known that was made without us")
    elif external_id is None:
        _tell(session, observed.look(), "nothing new: every checkpoint of the platform is known here")
    else:
        at = _moment(told["at"], session.history.now)
        found = observed.note(
            [ListedCheckpoint(external_id, at, told["comment"] or "")], told["source"] or ""
        )
        session.done("it is kept")
        _tell(session, found, f"'{escape(external_id)}' is known here already")


def _moment(text: str | None, now: datetime) -> datetime:
    if text is None:
        return now
    return read_time(text) or read_moment(text, now).start.astimezone(now.tzinfo)


def _tell(session: Session, found: Sequence[ObservedCheckpoint], nothing: str) -> None:
    if session.json:
        session.print_json({"schema": SCHEMA, "observed": [observed_json(one) for one in found]})
        return
    for one in found:
        session.line(observed_line(one, lambda at: format_date(at, "iso", session.history.now)))
    if not found:
        session.line(nothing)


def observed_line(one: ObservedCheckpoint, shown: Callable[[datetime], str]) -> str:
    """`v7  observed: made 2026-11-18 10:12, found 10:20, no intent recorded`."""
    comment = f"  ({escape(one.comment)})" if one.comment else ""
    by = f" by {escape(one.source)}" if one.source else ""
    times = f"made {shown(one.taken_at)}{by}, found {shown(one.at)}"
    return f"{escape(one.external_id)}  observed: {times}, {NO_INTENT}{comment}"


def below_observed(line: str, snapshot: Snapshot, look: FormatContext) -> str:
    """The line of a moment, below those of the checkpoints that were found while it was the newest."""
    style = look.date or "iso"
    told = [
        observed_line(one, lambda at: format_date(at, style, look.now)) for one in observed_of((snapshot,))
    ]
    return "\n".join([*(f"  {one}" for one in reversed(told)), line])


def observed_card(session: Session, one: ObservedCheckpoint) -> Iterator[str]:
    """All that is known of it."""

    def time(at: datetime) -> str:
        return format_date(at, "default", session.history.now)

    yield session.paint("id", f"observed {escape(one.external_id)}")
    if one.source:
        yield f"Platform:  {escape(one.source)}"
    yield f"Made:      {time(one.taken_at)}"
    yield f"Found:     {time(one.at)}"
    yield f"Newest:    {one.stands_on or ''}"
    yield ""
    yield f"    ({NO_INTENT})"
    if one.comment:
        yield f"    {escape(one.comment)}"
