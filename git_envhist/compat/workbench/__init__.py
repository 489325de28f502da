"""The `checkpoint create|list|info|delete` and `restore` commands of hosted platforms, implemented on git-envhist.

`git-envhist workbench checkpoint create --comment "clean setup"` prints `v3`, and `restore v3` restores it. If the
commands of a platform are configured (`envhist.platformCreate`, `envhist.platformList`), its own checkpoint is created
together with ours and provides the id, and checkpoints that only the platform has are listed as observed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime

from git_envhist.api import EnvHistory
from git_envhist.compat.workbench.platform_id import PlatformError, find_id
from git_envhist.disk import state_directory
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.history.tasks_and_effects import observed_of
from git_envhist.history.timeline import subject
from git_envhist.lazy import dataclass
from git_envhist.locks import locked
from git_envhist.model import ObservedCheckpoint, Snapshot
from git_envhist.printable_text import display_bytes, for_people
from git_envhist.tracking.effects import PlatformFailed, ask_platform, known_ids


def main(words: Sequence[str]) -> int:
    """Run a command; return the exit status."""

    try:
        return run(words)
    except EnvhistError as error:
        return _print(error)
    except BrokenPipeError:
        return 141
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return _print(EnvhistError(f"cannot access '{error.filename or '.'}': {reason}"))
    except KeyboardInterrupt:
        return 130


def _print(error: EnvhistError) -> int:

    print_error(f"error: {error.message}")
    if error.hint:
        print_error(f"hint: {error.hint}")
    return error.exit_code


# Checkpoints of a platform: snapshots with an id of its kind, and checkpoints that only the platform has.

NUMBERED = re.compile(r"v(\d{1,9})")
SHORT = 7
NO_INTENT = "no intent recorded"


@dataclass(frozen=True, slots=True)
class WorkbenchCheckpoint:
    """A line of the list."""

    id: str
    at: datetime
    comment: str
    verdict: str | None = None
    snapshot: Snapshot | None = None
    """The snapshot, or None if the platform made the checkpoint without git-envhist."""
    found_at: datetime | None = None
    story: str = ""

    @property
    def text(self) -> str:
        """The text of the list."""
        if self.snapshot is not None:
            return self.comment
        no_intent = f"observed, {NO_INTENT}"
        return f"{no_intent} ({self.comment})" if self.comment else no_intent


def checkpoints(history: EnvHistory, *, automatic: bool = False) -> list[WorkbenchCheckpoint]:
    """Return all checkpoints, newest first; if an id was given twice, the newest.

    `automatic` includes automatic snapshots, which no platform knows, by their own ids.
    """
    line = history.log()
    found: dict[str, WorkbenchCheckpoint] = {}
    for snapshot in line:
        external_id = snapshot.external_id
        if not external_id and automatic and snapshot.trigger.automatic:
            external_id = snapshot.id[:SHORT]
        if external_id:
            found.setdefault(external_id, _of_snapshot(snapshot, external_id))
    for observed in observed_of(line):
        found.setdefault(observed.external_id, _observed(observed))
    # The sort is stable, so checkpoints of the same second keep the order of the timeline, newest first.
    return sorted(found.values(), key=lambda one: one.at, reverse=True)


def find(history: EnvHistory, external_id: str) -> WorkbenchCheckpoint:
    """Return the checkpoint of an id or revision; raises `SnapshotNotFound` if there is none."""
    known = {one.id: one for one in checkpoints(history)}
    if external_id in known:
        return known[external_id]
    snapshot = history.resolve(external_id)
    return _of_snapshot(snapshot, snapshot.external_id or snapshot.id[:SHORT])


def next_id(history: EnvHistory) -> str:
    """Return the next free id (`v1`, `v2`, …), above all numbers ever used."""
    line = [*history.log(), *(one.snapshot for one in history.dropper.trash())]
    numbers = [int(match[1]) for one in known_ids(line) if (match := NUMBERED.fullmatch(one))]
    return f"v{max(numbers, default=0) + 1}"


def _of_snapshot(snapshot: Snapshot, external_id: str) -> WorkbenchCheckpoint:
    verdict = snapshot.verdict
    return WorkbenchCheckpoint(
        external_id,
        snapshot.at,
        subject(snapshot.intent) if snapshot.intent else "",
        verdict.status.value if verdict else None,
        snapshot,
        None,
        snapshot.story,
    )


def _observed(observed: ObservedCheckpoint) -> WorkbenchCheckpoint:
    return WorkbenchCheckpoint(
        observed.external_id, observed.taken_at, observed.comment, None, None, observed.at
    )


# Print for people or programs; control characters are escaped.


def print_line(line: str) -> None:
    """Print a line of the result."""
    print(for_people(line))


def print_error(line: str) -> None:
    """Print an error or a warning."""
    print(for_people(line), file=sys.stderr)


def print_json(value: object) -> None:
    """Print a JSON result in ASCII."""
    print(json.dumps(value))


NOT_EXACT = 5
TAKE_NAME = ("-s", "-sprite", "--sprite", "-o", "-org", "--org")
TAKE_TEXT = ("-m", "-comment", "--comment", "--message", "--verify")
DEBUG = ("-debug", "--debug")
NUMBERS = "workbench.lock"


def run(words: Sequence[str]) -> int:
    """Run a command; return the exit status."""
    options = _parser().parse_args(without_platform_options(words))
    do: Callable[[EnvHistory, argparse.Namespace], int] = options.do
    return do(EnvHistory.open(".", workers="fork"), options)


def without_platform_options(words: Sequence[str]) -> list[str]:
    """Return the arguments without platform options that have no meaning here.

    `-s/--sprite <name>`, `-o/--org <name>` and `--debug[=<file>]`: the environment is that of the current directory.
    """
    left: list[str] = []
    given = iter(words)
    for word in given:
        if word == "--":
            return [*left, word, *given]
        if left and left[-1] in TAKE_TEXT:
            left.append(word)
        elif word in TAKE_NAME:
            if next(given, None) is None:
                raise UsageError(f"{word} takes a name", hint="git-envhist workbench -h")
        elif not _is_platforms(word):
            left.append(word)
    return left


def _is_platforms(word: str) -> bool:
    name = word.partition("=")[0]
    return (name in TAKE_NAME and "=" in word) or name in DEBUG


class _Parser(argparse.ArgumentParser):
    """An argument parser that exits with our own exit statuses."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(message, hint="git-envhist workbench -h")


def _parser() -> _Parser:
    parser = _Parser(prog="git-envhist workbench", description="Checkpoints of the whole environment.")
    commands = parser.add_subparsers(metavar="<command>", required=True)
    group = commands.add_parser("checkpoint", aliases=["checkpoints"], help="create, list, info, delete")
    inner = group.add_subparsers(metavar="<command>", required=True)
    create = _command(inner, "create", _create, "create a checkpoint and print its id")
    create.add_argument("comment", nargs="?", metavar="<comment>", help="the comment of the checkpoint")
    create.add_argument(
        "-m", "-comment", "--comment", "--message", dest="reason", metavar="<comment>", help="the same"
    )
    create.add_argument("--verify", metavar="<command>", help="run this check and store its result")
    listing = _command(inner, "list", _list, "list all checkpoints, newest first", aliases=["ls"])
    listing.add_argument(
        "-history", "--history", metavar="<id>", help="list only this checkpoint and newer ones"
    )
    listing.add_argument(
        "-include-auto",
        "--include-auto",
        dest="auto",
        action="store_true",
        help="include automatic snapshots",
    )
    _with_id(_command(inner, "info", _info, "show a checkpoint", aliases=["show"]))
    _with_id(_command(inner, "delete", _delete, "delete a checkpoint", aliases=["rm"]))
    for group_of_restore in (inner, commands):
        _with_id(
            _command(
                group_of_restore,
                "restore",
                _restore,
                "restore a checkpoint; the current state is saved first",
            )
        )
    return parser


def _command(
    commands: argparse._SubParsersAction[_Parser],
    name: str,
    do: Callable[[EnvHistory, argparse.Namespace], int],
    description: str,
    aliases: Sequence[str] = (),
) -> _Parser:
    command = commands.add_parser(name, aliases=list(aliases), help=description)
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(do=do)
    return command


def _with_id(command: _Parser) -> None:
    command.add_argument(
        "id", metavar="<id>", help="an id from 'checkpoint list', or a revision of git envlog"
    )


def _create(history: EnvHistory, options: argparse.Namespace) -> int:
    if options.comment is not None and options.reason is not None:
        raise UsageError("the comment is given twice")
    comment = options.comment if options.comment is not None else options.reason
    given = _created(history.settings.platform_create)
    with ExitStack() as turn:
        # Two concurrent calls must not use the same number. It is assigned with the capture, so that others need not
        # wait for the check.
        turn.enter_context(locked(os.path.join(state_directory(history.repository.common_state), NUMBERS)))
        external_id = given or next_id(history)
        captured = history.capture(
            comment, external_id=external_id, verify=options.verify, captured=lambda _: turn.close()
        )
    for warning in captured.warnings:
        print_error(f"warning: {warning}")
    made = find(history, external_id)
    _answer(
        options, _as_json(made), f"Checkpoint {made.id} created{f': {made.verdict}' if made.verdict else ''}"
    )
    return 0


def _created(command: str | None) -> str | None:
    """Run the platform's command and return the id of its new checkpoint; None if none is configured."""
    if command is None:
        return None
    try:
        found = find_id(ask_platform(command))
    except PlatformError as error:
        raise PlatformFailed(
            f"'{command}' failed: {error}",
            hint="run the command yourself; it is the value of envhist.platformCreate",
        ) from error
    if found is None:
        raise Refused(
            f"'{command}' printed no checkpoint id: nothing was captured",
            hint="the command must print the checkpoint id as its last word",
        )
    return found


def _list(history: EnvHistory, options: argparse.Namespace) -> int:
    if history.settings.platform_list is not None:
        try:
            history.observed.look()
        except EnvhistError as error:
            print_error(f"warning: {error.message}")
    found = checkpoints(history, automatic=options.auto)
    if options.history is not None:
        found = _since(found, find(history, options.history))
    if options.json:
        print_json([_as_json(one) for one in found])
        return 0
    rows = [("ID", "CREATED", "CHECK", "COMMENT"), *(_row(one) for one in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print_line(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]])
        )
    return 0


def _since(found: list[WorkbenchCheckpoint], first: WorkbenchCheckpoint) -> list[WorkbenchCheckpoint]:
    # Checkpoints of the same second are ordered only by their position in the list.
    ids = [one.id for one in found]
    if first.id in ids:
        return found[: ids.index(first.id) + 1]
    return [one for one in found if one.at >= first.at]


def _row(one: WorkbenchCheckpoint) -> tuple[str, str, str, str]:
    return _plain(one.id), _time(one.at), one.verdict or "-", _plain(one.text)


def _info(history: EnvHistory, options: argparse.Namespace) -> int:
    one = find(history, options.id)
    if options.json:
        print_json(_as_json(one))
        return 0
    text = {
        "ID": one.id,
        "Created": _time(one.at),
        "Found": _time(one.found_at) if one.found_at else "",
        "Comment": one.text,
        "Check": one.verdict or "",
        "Snapshot": one.snapshot.id if one.snapshot else "",
        "Changed": one.story,
    }
    for label, value in text.items():
        if value:
            print_line(f"{label + ':':<10} {_plain(value)}")
    return 0


def _delete(history: EnvHistory, options: argparse.Namespace) -> int:
    one, snapshot = _with_snapshot(history, options, "delete")
    history.drop(snapshot)
    back = f"to restore it: git envlog undrop {snapshot.id[:7]}"
    _answer(options, {"deleted": one.id}, f"Checkpoint {_plain(one.id)} deleted; {back}")
    return 0


def _restore(history: EnvHistory, options: argparse.Namespace) -> int:
    one, snapshot = _with_snapshot(history, options, "restore")
    restored = history.restore(snapshot)
    done = f"Restored {_plain(one.id)}; to undo: git envrestore --undo"
    _answer(
        options,
        {"restored": one.id, "exact": restored.exact, "undo": restored.undo and restored.undo.id},
        done if restored.undo else f"Nothing to restore: the working tree equals {_plain(one.id)}",
    )
    for left in (*restored.kept, *restored.losses):
        print_error(f"warning: '{display_bytes(left.path)}': {left.why}")
    return 0 if restored.exact else NOT_EXACT


def _with_snapshot(
    history: EnvHistory, options: argparse.Namespace, verb: str
) -> tuple[WorkbenchCheckpoint, Snapshot]:
    """Return the checkpoint and its snapshot; raises an error if only the platform has it."""
    one = find(history, options.id)
    if one.snapshot is None:
        raise Refused(
            f"'{one.id}' was created by the platform without git-envhist, so it has no snapshot",
            hint=f"{verb} it on the platform",
        )
    return one, one.snapshot


def _answer(options: argparse.Namespace, value: object, line: str) -> None:
    if options.json:
        print_json(value)
    else:
        print_line(line)


def _as_json(one: WorkbenchCheckpoint) -> dict[str, object]:
    return {
        "id": one.id,
        "created_at": one.at.isoformat(timespec="seconds"),
        "observed_at": one.found_at.isoformat(timespec="seconds") if one.found_at else None,
        "comment": one.comment,
        "intent": None if one.snapshot is None else one.comment or None,
        "check": one.verdict,
        "snapshot": one.snapshot.id if one.snapshot else None,
        "changed": one.story,
        "is_auto": one.snapshot is not None and one.snapshot.trigger.automatic,
    }


def _time(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _plain(text: str) -> str:
    """Escape control characters."""
    first = text.split("\n", 1)[0]
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in first)
