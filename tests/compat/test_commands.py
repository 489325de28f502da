"""chimera's commands: their texts and their effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from git_envhist.compat.chimera.checkpoints import CheckpointManager
from git_envhist.compat.chimera.commands import cmd_checkpoint, cmd_redo, cmd_undo, snapshot_after_turn
from git_envhist.compat.chimera.env.local import LocalEnvironment


class Context:
    def __init__(self) -> None:
        self.messages: list[str] = []


class Session:
    def __init__(self, manager: CheckpointManager | None = None) -> None:
        self.checkpoint_manager = manager
        self.context = Context()


class Counting:
    def __init__(self) -> None:
        self.number = 0

    def checkpoint(self) -> str:
        self.number += 1
        return f"id-{self.number}"

    def restore(self, checkpoint_id: str) -> None:
        self.back_at = checkpoint_id


def told(command: Any, session: Session, env: Any, args: str = "") -> list[str]:
    lines: list[str] = []
    command(session, env, args, lines.append)
    return lines


def test_checkpoint_command_prints_the_original_texts() -> None:
    assert told(cmd_checkpoint, Session(), None, "list") == ["No checkpoint manager active."]
    session = Session(CheckpointManager(Counting()))
    assert told(cmd_checkpoint, session, None, "") == ["No checkpoints."]
    assert told(cmd_checkpoint, session, None, "undo") == ["No checkpoints to undo."]
    assert told(cmd_checkpoint, session, None, "save before refactor") == [
        "Checkpoint saved: before refactor (id-1)"
    ]
    assert told(cmd_checkpoint, session, None, "create") == ["Checkpoint saved: checkpoint-2 (id-2)"]
    first, second = session.checkpoint_manager.list_checkpoints()  # type: ignore[union-attr]
    assert told(cmd_checkpoint, session, None, "list") == [
        f"  id-1  before refactor  {first.time_str}",
        f"  id-2  checkpoint-2  {second.time_str}",
    ]
    assert told(cmd_checkpoint, session, None, "restore") == ["Usage: /checkpoint restore <name>"]
    assert told(cmd_checkpoint, session, None, "restore before refactor") == [
        "Restored to checkpoint: before refactor"
    ]
    assert told(cmd_checkpoint, session, None, "restore x") == ["\"No checkpoint named 'x'\""]
    assert told(cmd_checkpoint, session, None, "undo") == ["Undone to checkpoint: checkpoint-2"]
    assert told(cmd_checkpoint, session, None, "what") == ["Unknown checkpoint command: what"]


def test_undo_and_redo_restore_files_and_conversation_of_turns(workspace: Path) -> None:
    session, env = Session(), LocalEnvironment(str(workspace))
    assert told(cmd_undo, session, env) == ["/undo: nothing to undo"]
    assert told(cmd_redo, session, env) == ["/redo: nothing to redo"]
    env.write_file("a", "0")
    snapshot_after_turn(session, env)
    for turn in ("1", "2", "3"):
        env.write_file("a", turn)
        session.context.messages.append(f"turn {turn}")
        assert snapshot_after_turn(session, env) is not None
    assert told(cmd_undo, session, env) == ["/undo: rewound 1 turn (2 remaining)"]
    assert (env.read_file("a"), session.context.messages) == ("2", ["turn 1", "turn 2"])
    assert told(cmd_undo, session, env, "--steps 9") == ["/undo: rewound 2 turns (0 remaining)"]
    assert (env.read_file("a"), session.context.messages) == ("0", [])
    assert told(cmd_undo, session, env) == ["/undo: nothing to undo"]
    assert told(cmd_redo, session, env, "2") == ["/redo: replayed 2 turns (1 remaining)"]
    assert (env.read_file("a"), session.context.messages) == ("2", ["turn 1", "turn 2"])
    snapshot_after_turn(session, env)
    assert told(cmd_redo, session, env) == ["/redo: nothing to redo"]


def test_undo_without_environment_restores_the_conversation() -> None:
    session = Session()
    snapshot_after_turn(session, None)
    session.context.messages.append("turn 1")
    assert snapshot_after_turn(session, None) is None
    assert told(cmd_undo, session, None) == ["/undo: rewound 1 turn (0 remaining)"]
    assert session.context.messages == []
