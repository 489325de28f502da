"""`git envlog effect` and `observe`: record actions outside the machine, and checkpoints of the platform."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import ask_for, print_error_line
from git_envhist.cli.formats import effect_words
from git_envhist.cli.json_values import SCHEMA, effect_json
from git_envhist.cli.parser import argument, option
from git_envhist.errors import Refused, UsageError
from git_envhist.history.times import printed_time
from git_envhist.integrations.run_with_snapshots import ERR, OUT, run_passing_output
from git_envhist.model import Effect
from git_envhist.printable_text import escape

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
