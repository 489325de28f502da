"""`git envlog prune`: drop snapshots by a policy, and print the reason for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn
from git_envhist.cli.formats import FormatContext, count
from git_envhist.cli.json_values import SCHEMA, Json
from git_envhist.cli.parser import dry_run, option
from git_envhist.cli.terminal import pad, shorten, width
from git_envhist.cli.views.log import id_length
from git_envhist.history.timeline import subject
from git_envhist.printable_text import escape, escape_invalid

if TYPE_CHECKING:
    from git_envhist.model.retention import PrunedTimeline, PruneResult


WIDEST = 44
NARROWEST = 12


@command("prune", "git envlog prune [<options>]", writes=True)
@dry_run()
@option(
    "--keep-last",
    metavar="<number>",
    number=True,
    help="keep the <number> newest, and as many with an intent",
)
@option("--keep-hourly", metavar="<number>", number=True, help="keep the newest of each of <number> hours")
@option("--keep-daily", metavar="<number>", number=True, help="keep the newest of each of <number> days")
@option("--keep-weekly", metavar="<number>", number=True, help="keep the newest of each of <number> weeks")
@option("--all", "every", is_flag=True, help="prune all timelines of this repository")
def prune(
    session: Session,
    dry_run: bool,
    keep_last: int | None,
    keep_hourly: int | None,
    keep_daily: int | None,
    keep_weekly: int | None,
    every: bool,
) -> None:
    """Drop the snapshots that the configured or given policy does not keep. 'git envlog undrop' restores them."""
    session.no_paths()
    history = session.history
    pruned = history.prune(
        keep_last=keep_last,
        keep_hourly=keep_hourly,
        keep_daily=keep_daily,
        keep_weekly=keep_weekly,
        all_timelines=every,
        dry_run=dry_run,
    )
    if not dry_run:
        session.done("the snapshots are dropped")
    for warning in pruned.warnings:
        warn(warning)
    if session.json:
        session.print_json(_as_json(pruned))
        return
    context = FormatContext(history.now)
    for thinned in pruned.timelines:
        if len(pruned.timelines) > 1:
            session.line(f"{escape(thinned.timeline)}:")
        for line in _rows(thinned, context, session, whole=dry_run):
            session.line(line)
    for line in _summary(pruned):
        session.line(line)


def _rows(thinned: PrunedTimeline, context: FormatContext, session: Session, *, whole: bool) -> Iterator[str]:
    """Yield a line with the reason per dropped snapshot; with `whole` also for those that are kept."""
    decisions = [one for one in thinned.decisions if whole or not one.keep]
    length = id_length([one.snapshot.id for one in decisions])
    intents = [escape(subject(one.snapshot.intent)) for one in decisions]
    column = min(max(map(width, intents), default=0), WIDEST)
    if session.columns is not None:
        # Word, id, time and gaps have a fixed width; the reasons get half of the rest.
        times = max((width(context.time(one.snapshot)) for one in decisions), default=0)
        left = session.columns - length - times - 12
        column = max(NARROWEST, min(column, left // 2))
        intents = [shorten(intent, column) for intent in intents]
    for one, intent in zip(decisions, intents, strict=True):
        word = session.paint("pass", "keep") if one.keep else session.paint("fail", "drop")
        yield (
            f"{word}  {one.snapshot.id[:length]}  {context.time(one.snapshot)}  {pad(intent, column)}  "
            f"{escape(one.why)}"
        )


def _summary(pruned: PruneResult) -> Iterator[str]:
    kept = sum(len(one.decisions) for one in pruned.timelines) - pruned.gone
    would = "would drop" if pruned.dry_run else "dropped"
    yield f"{would} {count(pruned.gone, 'snapshot')}, {'keep' if pruned.dry_run else 'kept'} {kept:,}"
    if pruned.expired:
        gone = "would be deleted" if pruned.dry_run else "deleted"
        yield f"{count(pruned.expired, 'snapshot')} {gone} permanently (dropped more than 30 days ago)"
    if pruned.gone and not pruned.dry_run:
        yield f"can be restored until {pruned.until.isoformat()}: git envlog undrop"


def _as_json(pruned: PruneResult) -> Json:
    return {
        "schema": SCHEMA,
        "dry_run": pruned.dry_run,
        "timelines": [
            {
                "timeline": thinned.timeline,
                "snapshots": [
                    {
                        "id": one.snapshot.id,
                        "intent": escape_invalid(subject(one.snapshot.intent)),
                        "keep": one.keep,
                        "reasons": [escape_invalid(reason) for reason in one.reasons or (one.why_not,)],
                    }
                    for one in thinned.decisions
                ],
            }
            for thinned in pruned.timelines
        ],
        "dropped": pruned.gone,
        "expired": pruned.expired,
        "until": pruned.until.isoformat(),
        "warnings": [escape_invalid(warning) for warning in pruned.warnings],
    }
