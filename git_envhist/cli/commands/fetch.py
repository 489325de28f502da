"""`git envlog fetch`: brings what others share beside our own."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import AGAIN, stoppable, warn
from git_envhist.cli.formats import count
from git_envhist.cli.json_values import SCHEMA
from git_envhist.cli.parser import argument, option
from git_envhist.cli.progress import shown_steps
from git_envhist.model.storage import FetchOutcome
from git_envhist.text import escape, escape_invalid

STATES = {
    "none": "no signed head",
    "unknown-key": "head signed by a key that is not here",
    "later": "something was added after the head was signed",
    "altered": "not as its head was signed, taken all the same",
}
NOT_ALL = 5
"""All timelines came but the bad ones."""


@command("fetch", "git envlog fetch [--full] [--accept-rollback] [<remote>]", writes=True)
@argument("remote")
@option("--accept-rollback", is_flag=True, help="accept timelines that do not match the signed head")
@option("--full", is_flag=True, help="get all file contents now, not when first needed")
def fetch_command(session: Session, remote: str | None, accept_rollback: bool, full: bool) -> int:
    """Get timelines from a remote, with notes and names. Name them 'origin/<timeline>' in commands."""
    session.no_paths()
    with stoppable("each timeline is here whole, or as it was", AGAIN), shown_steps() as session.history.step:
        done = session.history.fetch(remote, full=full, accept_rollback=accept_rollback)
    session.done("it is fetched")
    if done.refused:
        warn(f"{count(done.refused, 'ref')} of '{done.remote.name}' left out: not spelled as a timeline is")
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
    how = "" if done.full else "; contents come when they are wanted"
    session.line(f"from '{escape(done.remote.name)}' ({escape(done.remote.shown)}){how}:")
    if not done.timelines and not done.bad:
        if done.pushed:
            session.line(f"  nothing new: {', '.join(map(escape, done.pushed))} was pushed from here")
        else:
            session.line("  it holds no history; ours goes there with: git envlog push")
    same = [name for name, arrival in done.timelines if arrival is FetchOutcome.SAME]
    for name, arrival in done.timelines:
        if arrival is not FetchOutcome.SAME:
            session.line(f"  {escape(name)}  {arrival.value}")
    if same:
        session.line(
            f"  {escape(same[0]) + ' ' if len(same) == 1 else count(len(same), 'timeline')} up to date"
        )
    for state, words in STATES.items():
        names = [name for name, told in done.heads if told == state]
        if names:
            which = escape(names[0]) if len(names) == 1 else count(len(names), "timeline")
            session.line(f"  {words}: {which}")
    if len(same) < len(done.timelines):
        name = escape([name for name, arrival in done.timelines if arrival is not FetchOutcome.SAME][-1])
        session.line(f"see it: git envlog {name}; against what is here: git envdiff {name}..now")
    return status
