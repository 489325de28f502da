"""`git envlog fetch`: get timelines from a remote."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import RUN_AGAIN, stoppable, warn
from git_envhist.cli.formats import count
from git_envhist.cli.json_values import SCHEMA
from git_envhist.cli.parser import argument, option
from git_envhist.cli.progress import shown_steps
from git_envhist.model.sharing import FetchOutcome, FetchResult
from git_envhist.printable_text import escape, escape_invalid

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
    if session.json:
        session.print_json(_as_json(done))
    else:
        for line in _lines(done):
            session.line(line)
    return NOT_ALL if done.bad else 0


def _as_json(done: FetchResult) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "remote": escape_invalid(done.remote.name),
        "url": escape_invalid(done.remote.shown),
        "timelines": [{"timeline": name, "status": arrival.value} for name, arrival in done.timelines],
        "bad": [{"timeline": escape_invalid(name), "why": escape_invalid(why)} for name, why in done.bad],
        "heads": [{"timeline": name, "state": state} for name, state in done.heads],
        "refused": done.refused,
        "full": done.full,
    }


def _lines(done: FetchResult) -> Iterator[str]:
    how = "" if done.full else "; file contents are fetched when needed"
    yield f"from '{escape(done.remote.name)}' ({escape(done.remote.shown)}){how}:"
    if not done.timelines and not done.bad:
        if done.pushed:
            yield f"  nothing new: {', '.join(map(escape, done.pushed))} was pushed from here"
        else:
            yield "  it contains no timelines; to send yours: git envlog push"
    same = [name for name, arrival in done.timelines if arrival is FetchOutcome.SAME]
    moved = [(name, arrival) for name, arrival in done.timelines if arrival is not FetchOutcome.SAME]
    for name, arrival in moved:
        yield f"  {escape(name)}  {arrival.value}"
    if same:
        yield f"  {escape(same[0]) + ' ' if len(same) == 1 else count(len(same), 'timeline')} up to date"
    for state, words in STATES.items():
        names = [name for name, found in done.heads if found == state]
        if names:
            which = escape(names[0]) if len(names) == 1 else count(len(names), "timeline")
            yield f"  {words}: {which}"
    if moved:
        newest = escape(moved[-1][0])
        yield f"list it: git envlog {newest}; compare with your files: git envdiff {newest}..now"
