"""Host programs that fork, cancel calls, kill processes, damage state files and pass invalid values."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from git_envhist.compat.chimera.checkpoints import CheckpointManager
from git_envhist.compat.chimera.checkpoints_ghost import GhostCommitManager
from git_envhist.compat.chimera.commands import cmd_undo, snapshot_after_turn
from git_envhist.compat.chimera.env.local import LocalEnvironment
from git_envhist.compat.praisonai.service import CheckpointService
from git_envhist.compat.praisonai.store import _size
from git_envhist.compat.storage import ProcessLock
from tests.support.repository import Repo

Run = Callable[[Any], Any]
Begin = Callable[..., CheckpointService]
PATIENCE = 60


def test_forked_process_does_not_wait_for_missing_threads(tmp_path: Path) -> None:
    lock = ProcessLock(str(tmp_path), "lock")
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock, lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        with lock, lock:
            os._exit(0)
    over.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    with lock:
        child = os.fork()
        if child == 0:
            # In a process forked while the lock is locked, releasing it does nothing.
            lock.__exit__()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_interrupted_deletion_is_finished(begin: Begin, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    for name in ("0123456789ab.going-4711", "notes.going-home", "0123456789ab"):
        (storage / name).mkdir(parents=True)
    begin()
    left = {entry.name for entry in storage.iterdir() if not entry.name.startswith(".")}
    assert left > {"notes.going-home", "0123456789ab"}
    assert not any(".going-4711" in name for name in left)


def test_delete_all_removes_a_renamed_workspace(
    run: Run, begin: Begin, workspace: Path, tmp_path: Path
) -> None:
    run(begin().save("Before", allow_empty=True))
    renamed = workspace.rename(tmp_path / "renamed")
    service = CheckpointService(str(renamed), str(tmp_path / "storage"))
    assert run(service.delete_all())
    assert [one.message for one in run(begin(renamed).list())] == ["Initial checkpoint"]


def test_cancelled_call_returns_after_its_operation(begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a").write_text("1")

    async def work() -> list[str]:
        saving = asyncio.ensure_future(service.save("To its end"))
        await asyncio.sleep(0)
        saving.cancel()
        await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        # Read without the lock, so an operation still running would be missing here.
        return [one.intent for one in service._keeper._store.checkpoints()]

    assert asyncio.run(work()) == ["To its end", "Initial checkpoint"]


def test_messages_since_the_last_checkpoint_are_saved(run: Run, begin: Begin, workspace: Path) -> None:
    service, messages = begin(), ["first"]
    service.bind(messages)
    (workspace / "a").write_text("1")
    saved = run(service.save("One"))
    messages.append("said, and no file was changed")
    assert run(service.restore(saved)).success
    assert messages == ["first"]
    unsaved = run(service.list())[0]
    assert unsaved.message == "[pre-restore] auto-save"
    assert run(service.restore(unsaved)).success
    assert messages == ["first", "said, and no file was changed"]
    # Neither messages nor files changed, so nothing is saved.
    before = len(run(service.list()))
    assert run(service.restore(unsaved)).success
    assert len(run(service.list())) == before


def test_rewritten_conversation_is_restored(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    messages: list[Any] = [{"said": "one"}, {"said": "two"}]
    service.bind(messages)
    (workspace / "a").write_text("1")
    saved = run(service.save("One"))
    kept = messages[0]
    messages[1:] = ["a summary", "three", "four"]
    assert run(service.restore(saved)).success
    assert messages == [{"said": "one"}, {"said": "two"}]
    assert messages[0] is kept


def test_invalid_ids_are_errors_and_raise_nothing(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a").write_text("1")
    assert not run(service.save(None)).success
    odd: dict[Any, Any] = {1: "a", "b": {2: object()}, ("c",): 3}
    saved = run(service.save("With odd values", metadata=odd))
    assert saved.success
    assert set(saved.checkpoint.metadata) == {"1", "b", "('c',)"}
    assert not run(service.save("x", step="1")).success
    half = run(service.save("half of a letter: \ud83d", allow_empty=True))
    assert half.checkpoint.message == "half of a letter: \N{REPLACEMENT CHARACTER}"
    assert run(service.restore("HEAD~1")).checkpoint.id == saved.checkpoint.id
    assert run(service.restore("HEAD")).checkpoint.id == saved.checkpoint.id
    round_and_round: dict[str, Any] = {}
    round_and_round["itself"] = round_and_round
    (workspace / "a").write_text("2")
    assert not run(service.save("Without end", metadata=round_and_round)).success
    assert not run(service.restore(object())).success
    assert _size("/nowhere") == _size("/") == 0


def test_invalid_state_file_is_renamed_and_never_overwritten(run: Run, begin: Begin, workspace: Path) -> None:
    ghost = GhostCommitManager(str(workspace))
    (workspace / "a").write_text("1")
    ghost.snapshot("one", ["a"])
    stack = Path(ghost._ghosts._file)
    good = stack.read_bytes()
    stack.write_bytes(good[:-5])
    assert GhostCommitManager(str(workspace)).depth == 0
    (beside,) = stack.parent.glob("stack.damaged-*")
    assert beside.read_bytes() == good[:-5]
    # An unreadable state file is an error, not an empty stack.
    stack.mkdir()
    with pytest.raises(OSError, match="stack"):
        ghost.snapshot("two", ["a"])
    stack.rmdir()
    stack.write_bytes(good)
    assert ghost.undo() == ["restored: a"]
    service = begin()
    position = Path(service.checkpoint_dir) / "position"
    position.write_text("[]")
    assert run(service.save("Goes on", allow_empty=True)).success
    assert [one.read_text() for one in position.parent.glob("position.damaged-*")] == ["[]"]


def test_path_that_leaves_through_a_link_is_refused(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    (workspace / "link").symlink_to(tmp_path / "elsewhere/deep")
    (workspace / "x").write_text("1")
    ghost = GhostCommitManager(str(workspace))
    for path in ("link/../x", "link/..", "..", "x/../.."):
        ghost.snapshot("no", [path])
        assert ghost.undo() == [f"skipped: {path} (it is outside the working directory)"]
    (workspace / "sub").mkdir()
    ghost.snapshot("yes", ["sub/../x", "./x"])
    (workspace / "x").write_text("2")
    assert ghost.undo() == ["restored: sub/../x", "restored: ./x"]
    assert (workspace / "x").read_text() == "1"


def test_missing_directory_has_a_stack(workspace: Path) -> None:
    ghost = GhostCommitManager(workspace / "to/be/made")
    ghost.snapshot("first", ["a"])
    (workspace / "to/be/made/a").write_text("1")
    assert ghost.undo() == ["deleted: a"]


def test_renamed_directory_keeps_its_stack(workspace: Path, tmp_path: Path) -> None:
    (workspace / "a").write_text("1")
    GhostCommitManager(str(workspace)).snapshot("one", ["a"])
    renamed = workspace.rename(tmp_path / "renamed")
    ghost = GhostCommitManager(str(renamed))
    assert [one.label for one in ghost.history] == ["one"]
    assert ghost.depth == 1


def test_errors_are_os_errors_for_callers(workspace: Path, hermetic: Path) -> None:
    env = LocalEnvironment(str(workspace))
    number = env.checkpoint()
    base = Path(env._checkpoints._open().repository.git_dir).parent.parent
    base.rename(base.with_name("away"))
    base.write_text("no directory")
    for call in (env.checkpoint, env.labels, env.remove_labels, lambda: env.restore(number)):
        with pytest.raises(OSError):
            call()
    with pytest.raises(OSError):
        GhostCommitManager(str(workspace)).snapshot("no", ["a"])


def test_unnamed_checkpoints_get_new_names(workspace: Path) -> None:
    manager = CheckpointManager(LocalEnvironment(str(workspace), retain=1))
    names = [manager.create().name for _ in range(3)]
    assert names == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert [one.name for one in manager.list_checkpoints()] == names[2:]


class Slotted:
    """A session without support for weak references, so its end cannot be observed."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages: list[str] = []


def test_turns_are_not_listed_as_checkpoints(workspace: Path) -> None:
    env, told = LocalEnvironment(str(workspace)), []
    manager = CheckpointManager(env)
    manager.create("by hand")
    session = Slotted()
    for turn in ("0", "1"):
        env.write_file("a", turn)
        session.messages.append(turn)
        info = snapshot_after_turn(session, env)
        assert info is not None
        assert info.name == f"turn-{turn}"
    assert [one.name for one in manager.list_checkpoints()] == ["by hand"]
    # A refused undo changes neither the files nor the conversation nor the list of turns.
    where, env.workdir = env.workdir, Path("/")
    cmd_undo(session, env, "", told.append)
    assert told == ["/undo: Refusing to restore: workdir / is root or HOME"]
    assert session.messages == ["0", "1"]
    env.workdir = where
    cmd_undo(session, env, "", told.append)
    assert told[1:] == ["/undo: rewound 1 turn (0 remaining)"]
    assert (env.read_file("a"), session.messages) == ("0", ["0"])


def test_new_session_does_not_inherit_turns_of_an_old_one() -> None:
    numbers = set()
    for _ in range(50):
        session = Slotted()
        numbers.add(id(session))
        snapshot_after_turn(session, None)
        told: list[str] = []
        cmd_undo(session, None, "", told.append)
        assert told == ["/undo: nothing to undo"]
    assert len(numbers) == 50


def test_turn_without_a_checkpoint_is_reported(workspace: Path) -> None:
    class Refusing:
        def checkpoint(self) -> str:
            raise OSError("no room")

        def restore(self, checkpoint_id: str) -> None:
            raise AssertionError

    session, told = Slotted(), []
    assert snapshot_after_turn(session, Refusing()) is None
    session.messages.append("1")
    snapshot_after_turn(session, None)
    cmd_undo(session, None, "", told.append)
    assert told == [
        "/undo: no checkpoint was made of that turn: files are not changed",
        "/undo: rewound 1 turn (0 remaining)",
    ]
    assert session.messages == []


def test_ended_shell_is_restarted_without_leftover_processes(workspace: Path) -> None:
    with LocalEnvironment(str(workspace), session=True) as env:
        assert env.run_command("echo last words; exit 3").exit_code == 3
        assert env.run_command("echo first words").stdout == "first words\n"
        child = os.pidfd_open(int(env.run_command("sleep 1000 >/dev/null 2>&1 & echo $!").stdout))
    # A pidfd becomes readable when its process ends.
    assert select.select([child], [], [], PATIENCE)[0] == [child]
    os.close(child)


def test_command_output_may_be_binary(workspace: Path) -> None:
    env = LocalEnvironment(str(workspace))
    assert env.run_command(r"printf 'a\377b'").stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_concurrent_checkpoints_get_different_ids(repo: Repo) -> None:
    words = [sys.executable, "-m", "git_envhist.compat.workbench", "checkpoint", "create"]
    running = [
        subprocess.Popen([*words, f"number {number}"], cwd=repo.path, stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    said = sorted(one.communicate()[0] for one in running)
    assert said == [f"Checkpoint v{number} created\n" for number in range(1, 4)]
