"""`git envlog effect`: notes what is done outside the machine, where no restore reaches."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from git_envhist.cli.command import Session, command
from git_envhist.cli.failure import ask_for, print_error_line
from git_envhist.cli.jsonform import SCHEMA, effect_json
from git_envhist.cli.options import argument, option
from git_envhist.cli.terminal import escape
from git_envhist.cli.words import effect_words
from git_envhist.errors import Refused, UsageError
from git_envhist.history.times import printed_time
from git_envhist.model import Effect
from git_envhist.triggers.passing import ERR, OUT, pass_through

LIST = "list"


@command("effect", "git envlog effect <text> [--irreversible] [--yes] [-- <command>…] | list", writes=True)
@argument("text")
@option("--irreversible", is_flag=True, help="it cannot be undone at all: a command is run only after a yes")
@option("-y", "--yes", is_flag=True, help="do not ask")
def effect(session: Session, text: str | None, irreversible: bool, yes: bool) -> int:
    """Notes something done outside the machine (a deployment, a message, a payment); a restore to before it says so."""
    if text is None:
        raise UsageError("effect: no text given", hint="git envlog effect 'deployed to staging', or: list")
    effects = session.history.effects
    if text == LIST and session.paths is None and not irreversible:
        _list(session, effects.all())
        return 0
    if session.paths is None:
        told = effects.note(text, irreversible=irreversible)
    else:
        words = _words(session.paths)
        told = effects.perform(
            text,
            lambda: pass_through(words, _keep_nothing, ERR if session.json else OUT),
            command=shlex.join(words),
            irreversible=irreversible,
            approve=lambda wanted: yes or _approve(wanted),
        )
    session.done("it is noted")
    if session.json:
        session.print_json({"schema": SCHEMA, "effect": effect_json(told)})
    else:
        print_error_line(f"noted on {(told.stands_on or '')[:7]}: {escape(effect_words(told))}")
    return told.exit_code or 0


def _list(session: Session, effects: Sequence[Effect]) -> None:
    """Print all effects, the oldest first."""
    if session.json:
        session.print_json({"schema": SCHEMA, "effects": [effect_json(one) for one in effects]})
        return
    now = session.history.now
    for one in effects:
        session.line(f"{(one.stands_on or '')[:7]}  {printed_time(one.at, now)}  {escape(effect_words(one))}")
    if not effects:
        print_error_line("hint: no effect is noted yet: git envlog effect 'deployed to staging'")


def _words(paths: tuple[str, ...]) -> tuple[str, ...]:
    if not paths or not paths[0]:
        raise UsageError("no command stands behind '--'", hint="git envlog effect 'deploy' -- make deploy")
    return paths


def _keep_nothing(_data: bytes) -> None:
    """What it writes is seen, and not kept."""


def _approve(wanted: Effect) -> bool:
    if not (sys.stdin.isatty() and os.isatty(2)):
        raise Refused(
            f"it cannot be undone, and nobody is here to be asked: '{wanted.text}'",
            hint="git envlog effect --yes",
        )
    print_error_line(f"this cannot be undone: {escape(wanted.text)}")
    ask_for(f"run '{escape(wanted.command or '')}'? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
