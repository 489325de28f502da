"""The texts of `/checkpoint create|save|list|restore|undo`, `/undo [N]` and `/redo`, as the command line prints them.

Each command takes a session, its environment, the arguments, and a function that prints a line. The manager of a
session is its `checkpoint_manager`; undo and redo create one for the environment if needed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass, field
from typing import Any
from weakref import finalize

from git_envhist.compat.chimera.checkpoints import CheckpointManager
from git_envhist.compat.chimera.storage import CheckpointInfo

Print = Callable[[str], object]


def cmd_checkpoint(session: Any, env: Any, args: str, out: Print) -> None:
    """`/checkpoint <command> [<name>]`."""
    manager: CheckpointManager | None = getattr(session, "checkpoint_manager", None)
    if manager is None:
        out("No checkpoint manager active.")
        return
    words = args.strip().split(maxsplit=1)
    name = words[1] if len(words) > 1 else ""
    command = COMMANDS.get(words[0] if words else "list")
    if command is None:
        out(f"Unknown checkpoint command: {words[0]}")
        return
    command(manager, name, out)


def _save(manager: CheckpointManager, name: str, out: Print) -> None:
    info = manager.create(name=name)
    out(f"Checkpoint saved: {info.name} ({info.id})")


def _list(manager: CheckpointManager, _: str, out: Print) -> None:
    every = manager.list_checkpoints()
    if not every:
        out("No checkpoints.")
    for info in every:
        out(f"  {info.id}  {info.name}  {info.time_str}")


def _restore(manager: CheckpointManager, name: str, out: Print) -> None:
    if not name:
        out("Usage: /checkpoint restore <name>")
        return
    try:
        out(f"Restored to checkpoint: {manager.restore_by_name(name).name}")
    except KeyError as missing:
        out(str(missing))


def _undo(manager: CheckpointManager, _: str, out: Print) -> None:
    info = manager.undo()
    out(f"Undone to checkpoint: {info.name}" if info is not None else "No checkpoints to undo.")


COMMANDS: dict[str, Callable[[CheckpointManager, str, Print], None]] = {
    "create": _save,
    "save": _save,
    "list": _list,
    "restore": _restore,
    "undo": _undo,
}


@dataclass
class ConversationTurn:
    """The state after one turn: its checkpoint, if there is an environment, and the conversation."""

    messages: list[Any]
    info: CheckpointInfo | None = None


@dataclass
class Turns:
    """The turns of one session; the last of `past` is the current one."""

    env: Any = None
    held: Any = None
    """The session itself, if it supports no weak references: its id must not be reused."""
    past: list[ConversationTurn] = field(default_factory=list)
    undone: list[ConversationTurn] = field(default_factory=list)


_TURNS: dict[int, Turns] = {}


def turns_of(session: Any) -> Turns:
    """Return the turns of a session, stored for the lifetime of the session."""
    key = id(session)
    if key not in _TURNS:
        _TURNS[key] = Turns()
        try:
            finalize(session, _TURNS.pop, key, None)
        except TypeError:
            _TURNS[key].held = session
    return _TURNS[key]


def snapshot_after_turn(session: Any, env: Any) -> CheckpointInfo | None:
    """Record the state of a session, once at the start and after each turn. Undone turns are deleted."""
    turns = turns_of(session)
    if turns.env is None and hasattr(env, "checkpoint"):
        turns.env = env
    info = _checkpoint(turns)
    turns.past.append(ConversationTurn(copy.deepcopy(list(_messages(session))), info))
    turns.undone.clear()
    return info


def _checkpoint(turns: Turns) -> CheckpointInfo | None:
    if turns.env is None:
        return None
    try:
        made = turns.env.checkpoint()
    except OSError:
        # The turn is recorded even without a checkpoint, so that the conversation can be undone.
        return None
    # Without a label: the list of named checkpoints is for those that users named.
    return CheckpointInfo(made, f"turn-{len(turns.past)}", time.time(), "turn snapshot")


def cmd_undo(session: Any, env: Any, args: str, out: Print) -> None:
    """`/undo [N]`: restore files and conversation of N turns before."""
    turns = turns_of(session)
    wanted = min(_steps(args), len(turns.past) - 1)
    if wanted < 1:
        out("/undo: nothing to undo")
        return
    if not _restore_turn("/undo", session, turns, turns.past[-wanted - 1], out):
        return
    for _ in range(wanted):
        turns.undone.append(turns.past.pop())
    out(f"/undo: rewound {_counted(wanted)} ({len(turns.past) - 1} remaining)")


def cmd_redo(session: Any, env: Any, args: str, out: Print) -> None:
    """`/redo [N]`: redo undone turns, if no new turn followed."""
    turns = turns_of(session)
    wanted = min(_steps(args), len(turns.undone))
    if wanted < 1:
        out("/redo: nothing to redo")
        return
    if not _restore_turn("/redo", session, turns, turns.undone[-wanted], out):
        return
    for _ in range(wanted):
        turns.past.append(turns.undone.pop())
    out(f"/redo: replayed {_counted(wanted)} ({len(turns.undone)} remaining)")


def _restore_turn(command: str, session: Any, turns: Turns, turn: ConversationTurn, out: Print) -> bool:
    """Restore the files, then the conversation; return whether that succeeded."""
    if turn.info is not None:
        try:
            turns.env.restore(turn.info.id)
        except (OSError, ValueError) as why:
            out(f"{command}: {why}")
            return False
    elif turns.env is not None:
        out(f"{command}: no checkpoint was made of that turn: files are not changed")
    _messages(session)[:] = copy.deepcopy(turn.messages)
    return True


def _messages(session: Any) -> MutableSequence[Any]:
    context = getattr(session, "context", None)
    held = getattr(context if context is not None else session, "messages", None)
    return held if isinstance(held, MutableSequence) else []


def _steps(args: str) -> int:
    words = args.replace("=", " ").split()
    number = words[-1] if words else ""
    return max(1, int(number)) if number.isdecimal() else 1


def _counted(number: int) -> str:
    return f"{number} turn" + ("" if number == 1 else "s")
