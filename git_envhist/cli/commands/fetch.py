"""`git envlog fetch`: get timelines from a remote."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import RUN_AGAIN, stoppable, warn
from git_envhist.cli.formats import count
from git_envhist.cli.json_values import SCHEMA
from git_envhist.cli.parser import argument, option
from git_envhist.cli.progress import shown_steps
from git_envhist.model.sharing import FetchOutcome
from git_envhist.text import escape, escape_invalid

STATES = {
    "none": "not signed",
    "unknown-key": "signed by a key that you do not have",
    "later": "not completely signed: snapshots were added after the last signed push",
    "altered": "does not match its signature; accepted anyway",
}
NOT_ALL = 5
"""Exit status if some timelines were refused."""


@command("fetch", "git envlog fetch [--full] [--accept-rollback] [<remote>]", writes=True)
@argument("remote")
@option("--accept-rollback", is_flag=True, help="accept timelines that do not match the signed head")
@option("--full", is_flag=True, help="get all file contents now, not when first needed")
def fetch_command(session: Session, remote: str | None, accept_rollback: bool, full: bool) -> int:
    """Get timelines from a remote, with notes and names. Name them 'origin/<timeline>' in commands."""
    session.no_paths()
    with (
        stoppable("each timeline is either fetched completely or unchanged", RUN_AGAIN),
        shown_steps() as session.history.step,
    ):
        done = session.history.fetch(remote, full=full, accept_rollback=accept_rollback)
    session.done("the timelines are fetched")
    if done.refused:
        warn(f"{count(done.refused, 'ref')} of '{done.remote.name}' skipped: not a valid timeline name")
    for name, why in done.bad:
        warn(f"'{name}' was not fetched: {why}")
    status = NOT_ALL if done.bad else 0
    if session.json:
        session.print_json(
            {
                "schema": SCHEMA,
                "remote": escape_invalid(done.remote.name),
                "url": escape_invalid(done.remote.shown),
                "timelines": [
                    {"timeline": name, "status": arrival.value} for name, arrival in done.timelines
                ],
                "bad": [
                    {"timeline": escape_invalid(name), "why": escape_invalid(why)} for name, why in done.bad
                ],
                "heads": [{"timeline": name, "state": state} for name, state in done.heads],
                "refused": done.refused,
                "full": done.full,
            }
        )
        return status
    how = "" if done.full else "; file contents are fetched when needed"
    session.line(f"from '{escape(done.remote.name)}' ({escape(done.remote.shown)}){how}:")
    if not done.timelines and not done.bad:
        if done.pushed:
            session.line(f"  nothing new: {', '.join(map(escape, done.pushed))} was pushed from here")
        else:
            session.line("  it contains no timelines; to send yours: git envlog push")
    same = [name for name, arrival in done.timelines if arrival is FetchOutcome.SAME]
    for name, arrival in done.timelines:
        if arrival is not FetchOutcome.SAME:
            session.line(f"  {escape(name)}  {arrival.value}")
    if same:
        session.line(
            f"  {escape(same[0]) + ' ' if len(same) == 1 else count(len(same), 'timeline')} up to date"
        )
    for state, words in STATES.items():
        names = [name for name, found in done.heads if found == state]
        if names:
            which = escape(names[0]) if len(names) == 1 else count(len(names), "timeline")
            session.line(f"  {words}: {which}")
    if len(same) < len(done.timelines):
        name = escape([name for name, arrival in done.timelines if arrival is not FetchOutcome.SAME][-1])
        session.line(f"list it: git envlog {name}; compare with your files: git envdiff {name}..now")
    return status
