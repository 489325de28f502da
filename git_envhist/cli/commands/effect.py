"""`git envlog effect` and `observe`: record actions outside the machine, and checkpoints of the platform."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import ask_for, print_error_line
from git_envhist.cli.formats import FormatContext, effect_words, format_date
from git_envhist.cli.json_values import SCHEMA, effect_json, observed_json
from git_envhist.cli.parser import argument, option
from git_envhist.errors import Refused, UsageError
from git_envhist.history.tasks_and_effects import observed_of
from git_envhist.history.times import printed_time, read_time_span
from git_envhist.integrations.run_command import ERR, OUT, run_passing_output
from git_envhist.model import Effect, ObservedCheckpoint, Snapshot
from git_envhist.text import escape
from git_envhist.tracking.effects import ListedCheckpoint, read_time

# `git envlog effect`: record an action that no restore undoes.

LIST = "list"


@command("effect", "git envlog effect <text> [--irreversible] [--yes] [-- <command>...] | list", writes=True)
@argument("text")
@option("--irreversible", is_flag=True, help="it cannot be undone: ask before running the command")
@option("-y", "--yes", is_flag=True, help="do not ask for confirmation")
def effect(session: Session, text: str | None, irreversible: bool, yes: bool) -> int:
    """Record an action outside this machine (a deployment, a payment). A later restore warns that it is not undone."""
    if text is None:
        raise UsageError(
            "effect: no text given",
            hint="git envlog effect 'deployed to staging'; list effects: git envlog effect list",
        )
    effects = session.history.effects
    if text == LIST and session.paths is None and not irreversible:
        _list(session, effects.all())
        return 0
    if session.paths is None:
        recorded = effects.note(text, irreversible=irreversible)
    else:
        words = _words(session.paths)
        recorded = effects.perform(
            text,
            lambda: run_passing_output(words, _ignore_output, ERR if session.json else OUT),
            command=shlex.join(words),
            irreversible=irreversible,
            approve=lambda wanted: yes or _approve(wanted),
        )
    session.done("the effect is recorded")
    if session.json:
        session.print_json({"schema": SCHEMA, "effect": effect_json(recorded)})
    else:
        print_error_line(f"recorded on {(recorded.snapshot_id or '')[:7]}: {escape(effect_words(recorded))}")
    return recorded.exit_code or 0


def _list(session: Session, effects: Sequence[Effect]) -> None:
    """Print all effects, the oldest first."""
    if session.json:
        session.print_json({"schema": SCHEMA, "effects": [effect_json(one) for one in effects]})
        return
    now = session.history.now
    for one in effects:
        session.line(
            f"{(one.snapshot_id or '')[:7]}  {printed_time(one.at, now)}  {escape(effect_words(one))}"
        )
    if not effects:
        print_error_line("hint: no effects recorded; record one: git envlog effect 'deployed to staging'")


def _words(paths: tuple[str, ...]) -> tuple[str, ...]:
    if not paths or not paths[0]:
        raise UsageError("no command after '--'", hint="git envlog effect 'deploy' -- make deploy")
    return paths


def _ignore_output(_data: bytes) -> None:
    """Print the output of the command without storing it."""


def _approve(wanted: Effect) -> bool:
    if not (sys.stdin.isatty() and os.isatty(2)):
        raise Refused(
            f"irreversible effect needs confirmation, and there is no terminal: '{wanted.text}'",
            hint="git envlog effect --yes",
        )
    print_error_line(f"this cannot be undone: {escape(wanted.text)}")
    ask_for(f"run '{escape(wanted.command or '')}'? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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
