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
from git_envhist.cli.views.details import with_outputs
from git_envhist.cli.views.why import call_words
from git_envhist.diff.facts import fact_words, path_of_fact_change, without_secrets
from git_envhist.errors import EnvhistError
from git_envhist.history.failure import Failure, Rank, Suspect, find_failure, order_suspects
from git_envhist.history.times import printed_time
from git_envhist.history.titles import title
from git_envhist.lazy import replace
from git_envhist.model import Change, EnvPath, FactChange, Snapshot
from git_envhist.probes import kinds, package_directories
from git_envhist.text import escape

if TYPE_CHECKING:
    from git_envhist.cli.command import Session
    from git_envhist.history.attribution import Attribution
    from git_envhist.history.why import OriginReader

DEFAULT_LIMIT = 10
LABEL = 11


class NoFailure(EnvhistError):
    """No snapshot has a failing result of the check."""

    code = "no-failure"
    exit_code = 4


def print_failure(session: Session, command: str | None, limit: int | None, *, every: bool) -> None:
    """Print the first failing snapshot of a check, and the changes that may have broken it."""
    history = session.history
    found = find_failure(history.catalog.own.snapshots, command)
    if found is None:
        what = (
            "no snapshot failed a check" if command is None else f"no snapshot failed this check: '{command}'"
        )
        raise NoFailure(what, hint="run one: git envlog verify -- <command>")
    base = found.passed or _parent(session, found.first)
    suspects = _suspects(session, found, base)
    shown = suspects if every else suspects[: limit or DEFAULT_LIMIT]
    with history.origins(found.first) as origins:
        answers = [_attribution(origins, found, suspect) for suspect in shown]
    if session.json:
        session.print_json(_json(found, base, shown, answers, len(suspects)))
        return
    session.page()
    for line in _lines(session, found, base, shown, answers, len(suspects)):
        session.line(line)


def _parent(session: Session, snapshot: Snapshot) -> Snapshot | None:
    return next((one for one in session.history.catalog.own.snapshots if one.commit == snapshot.parent), None)


def _suspects(session: Session, found: Failure, base: Snapshot | None) -> list[Suspect]:
    if base is None:
        return []
    checked = with_outputs(session.history, found.first)
    output = "\n".join(one.output_tail for one in checked.verdicts if one.command == found.verdict.command)
    compared = session.history.diff(base, found.first)
    facts = without_secrets(compared.facts)
    return order_suspects(compared.files, facts, output, kinds(), package_directories())


def _attribution(origins: OriginReader, found: Failure, suspect: Suspect) -> Attribution | None:
    """Return who made a change; None if several steps come into question."""
    if found.unchecked:
        return None
    change = suspect.change
    path = change.path if isinstance(change, Change) else EnvPath(path_of_fact_change(change))
    return origins.at(found.first.commit, path or None).attribution


def _lines(
    session: Session,
    found: Failure,
    base: Snapshot | None,
    shown: list[Suspect],
    answers: list[Attribution | None],
    total: int,
) -> Iterator[str]:
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
    for suspect, answer in zip(shown, answers, strict=True):
        if suspect.rank is not rank:
            rank = suspect.rank
            yield f"{rank.value}:"
        yield f"  {_words(suspect)}"
        if answer is not None and answer.call is not None:
            yield f"      {call_words(answer.call)}"
    if total > len(shown):
        yield f"{total - len(shown):,} more changes (--all)"
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


def _json(
    found: Failure,
    base: Snapshot | None,
    shown: list[Suspect],
    answers: list[Attribution | None],
    total: int,
) -> Json:
    return {
        "schema": SCHEMA,
        "subject": "failed",
        "check": verdict_json(replace(found.verdict, output_tail="")),
        "first": found.first.id,
        "passed": found.passed and found.passed.id,
        "compared_with": base and base.id,
        "unchecked": found.unchecked,
        "changes_total": total,
        "changes": [
            {
                "rank": suspect.rank.value,
                **(
                    {"fact": fact_change_json(suspect.change)}
                    if isinstance(suspect.change, FactChange)
                    else {"file": change_json(suspect.change)}
                ),
                "certainty": answer.certainty.value if answer is not None else "uncertain",
                "call": answer and answer.call and call_json(answer.call),
            }
            for suspect, answer in zip(shown, answers, strict=True)
        ],
    }
