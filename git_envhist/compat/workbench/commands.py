"""The commands of a platform's command line, each on the verb that does it here."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime

from git_envhist.compat.workbench.checkpoints import Checkpoint, checkpoints, find, next_id
from git_envhist.compat.workbench.printing import complain, print_json, say
from git_envhist.doing.observing import ask_platform
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.library.history import EnvHistory
from git_envhist.model import Snapshot
from git_envhist.store.locks import locked, state_directory
from git_envhist.store.quoting import show

NOT_EXACT = 5
NUMBERS = "workbench.lock"
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


def run(words: Sequence[str]) -> int:
    """Do what the words say; the status to end with."""
    options = _parser().parse_args(list(words))
    do: Callable[[EnvHistory, argparse.Namespace], int] = options.do
    return do(EnvHistory.open(".", workers="fork"), options)


class _Parser(argparse.ArgumentParser):
    """One that ends as all of our programs do."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(message, hint="git-envhist workbench -h")


def _parser() -> _Parser:
    parser = _Parser(prog="git-envhist workbench", description="Checkpoints of the whole environment.")
    commands = parser.add_subparsers(metavar="<command>", required=True)
    group = commands.add_parser("checkpoint", aliases=["checkpoints"], help="create, list, info, delete")
    inner = group.add_subparsers(metavar="<command>", required=True)
    create = _command(inner, "create", _create, "take one, and say its id")
    create.add_argument("comment", nargs="?", metavar="<comment>", help="why it is taken")
    create.add_argument("-m", "--comment", "--message", dest="reason", metavar="<comment>", help="the same")
    create.add_argument("--verify", metavar="<command>", help="then run that check, and keep its verdict")
    _command(inner, "list", _list, "all of them, newest first", aliases=["ls"])
    _with_id(_command(inner, "info", _info, "what is known of one", aliases=["show"]))
    _with_id(_command(inner, "delete", _delete, "let one go", aliases=["rm"]))
    _with_id(_command(commands, "restore", _restore, "go back to one; what is here is saved first"))
    return parser


def _command(
    commands: argparse._SubParsersAction[_Parser],
    name: str,
    do: Callable[[EnvHistory, argparse.Namespace], int],
    what: str,
    aliases: Sequence[str] = (),
) -> _Parser:
    command = commands.add_parser(name, aliases=list(aliases), help=what)
    command.add_argument("--json", action="store_true", help="the answer as JSON")
    command.set_defaults(do=do)
    return command


def _with_id(command: _Parser) -> None:
    command.add_argument(
        "id", metavar="<id>", help="as 'checkpoint list' has it, or any revision of git envlog"
    )


def _create(history: EnvHistory, options: argparse.Namespace) -> int:
    if options.comment is not None and options.reason is not None:
        raise UsageError("the comment is given twice")
    comment = options.comment if options.comment is not None else options.reason
    given = _created(history.settings.platform_create)
    with ExitStack() as turn:
        # Two that are created at once must not be given one number. It is given with the capture: whoever waits need
        # not wait for the check.
        turn.enter_context(locked(os.path.join(state_directory(history.repository.common_state), NUMBERS)))
        external_id = given or next_id(history)
        captured = history.capture(
            comment, external_id=external_id, verify=options.verify, captured=lambda _: turn.close()
        )
    for warning in captured.warnings:
        complain(f"warning: {warning}")
    made = find(history, external_id)
    _answer(
        options, _as_json(made), f"Checkpoint {made.id} created{f': {made.verdict}' if made.verdict else ''}"
    )
    return 0


def _created(command: str | None) -> str | None:
    """The id of the platform's own checkpoint, where there is a platform: the last word that it says."""
    if command is None:
        return None
    said = ask_platform(command).split()
    named = [word.strip(".,:;'\"") for word in said if re.search(r"\d", word)]
    if not named or not WORD.fullmatch(named[-1]):
        raise Refused(
            f"'{command}' said no id of a checkpoint: nothing was captured",
            hint="it is to end what it says with the id of the checkpoint that it made",
        )
    return named[-1]


def _list(history: EnvHistory, options: argparse.Namespace) -> int:
    if history.settings.platform_list is not None:
        try:
            history.observed.look()
        except EnvhistError as error:
            complain(f"warning: {error.message}")
    found = checkpoints(history)
    if options.json:
        print_json([_as_json(one) for one in found])
        return 0
    rows = [("ID", "CREATED", "CHECK", "COMMENT"), *(_row(one) for one in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        say("  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]))
    return 0


def _row(one: Checkpoint) -> tuple[str, str, str, str]:
    return _plain(one.id), _time(one.at), one.verdict or "-", _plain(one.told)


def _info(history: EnvHistory, options: argparse.Namespace) -> int:
    one = find(history, options.id)
    if options.json:
        print_json(_as_json(one))
        return 0
    told = {
        "ID": one.id,
        "Created": _time(one.at),
        "Found": _time(one.found_at) if one.found_at else "",
        "Comment": one.told,
        "Check": one.verdict or "",
        "Snapshot": one.snapshot.id if one.snapshot else "",
        "Changed": one.story,
    }
    for label, value in told.items():
        if value:
            say(f"{label + ':':<10} {_plain(value)}")
    return 0


def _delete(history: EnvHistory, options: argparse.Namespace) -> int:
    one, snapshot = _kept_here(history, options, "delete")
    history.drop(snapshot)
    back = f"back with: git envlog undrop {snapshot.id[:7]}"
    _answer(options, {"deleted": one.id}, f"Checkpoint {_plain(one.id)} deleted; {back}")
    return 0


def _restore(history: EnvHistory, options: argparse.Namespace) -> int:
    one, snapshot = _kept_here(history, options, "restore")
    restored = history.restore(snapshot)
    done = f"Restored {_plain(one.id)}; back with: git envrestore --undo"
    _answer(
        options,
        {"restored": one.id, "exact": restored.exact, "undo": restored.undo and restored.undo.id},
        done if restored.undo else f"Checkpoint {_plain(one.id)} is what is here",
    )
    for left in (*restored.kept, *restored.losses):
        complain(f"warning: '{show(left.path)}': {left.why}")
    return 0 if restored.exact else NOT_EXACT


def _kept_here(history: EnvHistory, options: argparse.Namespace, verb: str) -> tuple[Checkpoint, Snapshot]:
    """The checkpoint that is meant, and the snapshot that holds it: of one that the platform made there is none."""
    one = find(history, options.id)
    if one.snapshot is None:
        raise Refused(
            f"'{one.id}' was made by the platform, without us: nothing of it is kept here",
            hint=f"{verb} it where it was made",
        )
    return one, one.snapshot


def _answer(options: argparse.Namespace, value: object, line: str) -> None:
    if options.json:
        print_json(value)
    else:
        say(line)


def _as_json(one: Checkpoint) -> dict[str, object]:
    return {
        "id": one.id,
        "created_at": one.at.isoformat(timespec="seconds"),
        "observed_at": one.found_at.isoformat(timespec="seconds") if one.found_at else None,
        "comment": one.comment,
        "intent": None if one.snapshot is None else one.comment or None,
        "check": one.verdict,
        "snapshot": one.snapshot.id if one.snapshot else None,
        "changed": one.story,
    }


def _time(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _plain(text: str) -> str:
    """Nothing of somebody's text steers a terminal."""
    first = text.split("\n", 1)[0]
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in first)
