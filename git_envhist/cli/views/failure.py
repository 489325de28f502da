"""The answer of `git envlog why --failed`: the step that broke a check, and its changes, the likeliest first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from git_envhist.cli.formats import count, first_line
from git_envhist.cli.json_values import (
    SCHEMA,
    Json,
    call_json,
    change_json,
    fact_change_json,
    verdict_json,
)
from git_envhist.cli.views.why import call_words
from git_envhist.diff.facts import fact_words
from git_envhist.history.failure import FailureAnswer, Rank, Suspect
from git_envhist.history.times import printed_time
from git_envhist.history.titles import title
from git_envhist.lazy import replace
from git_envhist.model import FactChange, Snapshot
from git_envhist.printable_text import escape

if TYPE_CHECKING:
    from git_envhist.cli.command import Session

DEFAULT_LIMIT = 10
LABEL = 11


def print_failure(session: Session, command: str | None, limit: int | None, *, every: bool) -> None:
    """Print the first failing snapshot of a check, and the changes that may have broken it."""
    found = session.history.why_failed(command, limit=None if every else limit or DEFAULT_LIMIT)
    if session.json:
        session.print_json(failure_json(found))
        return
    session.page()
    for line in _lines(session, found):
        session.line(line)


def _lines(session: Session, answer: FailureAnswer) -> Iterator[str]:
    found, base, shown = answer.failure, answer.compared_with, answer.suspects

    def named(snapshot: Snapshot) -> str:
        at = printed_time(snapshot.at, session.history.now)
        return f"{session.paint('id', snapshot.id[:7])}  {at}  {escape(title(snapshot))}"

    yield "Check:".ljust(LABEL) + escape(first_line(found.verdict.command))
    yield "Failed:".ljust(LABEL) + named(found.first)
    yield "Passed:".ljust(LABEL) + (
        named(found.passed) if found.passed is not None else "no earlier snapshot"
    )
    if found.unchecked:
        yield (
            "Between:".ljust(LABEL) + f"{count(found.unchecked, 'snapshot')} not checked (git envlog bisect)"
        )
    rank: Rank | None = None
    for suspect in shown:
        if suspect.rank is not rank:
            rank = suspect.rank
            yield f"{rank.value}:"
        yield f"  {_words(suspect)}"
        if suspect.attribution is not None and suspect.attribution.call is not None:
            yield f"      {call_words(suspect.attribution.call)}"
    if answer.total > len(shown):
        yield f"{answer.total - len(shown):,} more changes (--all)"
    if base is not None:
        old, new = base.id[:12], found.first.id[:12]
        yield "Look:".ljust(LABEL) + f"git envdiff {old} {new}"
        yield "Go back:".ljust(LABEL) + f"git envrestore {old}"


def _words(suspect: Suspect) -> str:
    change = suspect.change
    if isinstance(change, FactChange):
        mark = "+" if change.before is None else "-" if change.after is None else "~"
        return f"{mark} {escape(change.probe)} {escape(fact_words(change))}"
    return f"{change.kind.value} {escape(os.fsdecode(change.path))}"


def failure_json(answer: FailureAnswer) -> Json:
    """Return the step that broke a check, and its changes."""
    found, base = answer.failure, answer.compared_with
    return {
        "schema": SCHEMA,
        "subject": "failed",
        "check": verdict_json(replace(found.verdict, output_tail="")),
        "first": found.first.id,
        "passed": found.passed and found.passed.id,
        "compared_with": base and base.id,
        "unchecked": found.unchecked,
        "changes_total": answer.total,
        "changes": list(map(_suspect_json, answer.suspects)),
    }


def _suspect_json(suspect: Suspect) -> Json:
    change, found = suspect.change, suspect.attribution
    return {
        "rank": suspect.rank.value,
        **(
            {"fact": fact_change_json(change)}
            if isinstance(change, FactChange)
            else {"file": change_json(change)}
        ),
        "certainty": found.certainty.value if found is not None else "uncertain",
        "call": found and found.call and call_json(found.call),
    }
