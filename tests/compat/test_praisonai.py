"""PraisonAI's checkpoint service: results, messages and events of its methods."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from git_envhist.compat.praisonai.service import CheckpointService, is_protected
from git_envhist.compat.praisonai.types import CheckpointEvent

Run = Callable[[Any], Any]
Begin = Callable[..., CheckpointService]


def messages(run: Run, service: CheckpointService) -> list[str]:
    return [one.message for one in run(service.list_checkpoints())]


def test_saved_checkpoint_is_restored(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a.txt").write_text("one\n")
    saved = run(service.save("First", metadata={"ticket": 7}))
    assert saved.success
    assert saved.checkpoint.message == "First"
    assert saved.checkpoint.timestamp.tzinfo is not None
    (workspace / "a.txt").write_text("two\n")
    (workspace / "new.txt").write_text("new\n")
    restored = run(service.restore(saved.checkpoint.id))
    assert restored.success
    assert restored.checkpoint == saved.checkpoint
    assert restored.checkpoint.metadata == {"ticket": 7}
    assert sorted(os.listdir(workspace)) == ["a.txt"]
    assert (workspace / "a.txt").read_text() == "one\n"


def test_result_and_checkpoint_are_accepted_as_ids(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a.txt").write_text("one\n")
    saved = run(service.save("First"))
    for spelled in (saved, saved.checkpoint, saved.checkpoint.short_id, saved.checkpoint.id[:5]):
        (workspace / "a.txt").write_text("two\n")
        assert run(service.restore(spelled)).checkpoint.id == saved.checkpoint.id
        assert (workspace / "a.txt").read_text() == "one\n"


def test_save_without_changes_fails_unless_empty_is_allowed(run: Run, begin: Begin) -> None:
    service = begin()
    assert run(service.save("Nothing")).error == "No changes to checkpoint"
    assert run(service.save("Nothing", allow_empty=True)).success
    assert messages(run, service) == ["Nothing", "Initial checkpoint"]
    assert not run(service.save(" ")).success


def test_initial_files_are_changes_of_the_first_save(run: Run, begin: Begin, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    service = begin()
    saved = run(service.save("Before refactoring"))
    assert saved.checkpoint.files_changed == ["a.txt"]
    assert run(service.save("Again")).error == "No changes to checkpoint"
    # A rewind to the initial checkpoint keeps files that existed before it.
    assert run(service.rewind()).checkpoint.message == "Initial checkpoint"
    assert (workspace / "a.txt").read_text() == "one\n"


def test_checkpoint_lists_changed_files(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a.txt").write_text("1\n2\n3\n")
    (workspace / "b.txt").write_text("b\n")
    run(service.save("First"))
    (workspace / "a.txt").write_text("1\nzwei\n3\n4\n")
    (workspace / "b.txt").unlink()
    saved = run(service.save("Second")).checkpoint
    assert saved.files_changed == ["a.txt", "b.txt"]
    assert (saved.insertions, saved.deletions) == (2, 2)


def test_steps_are_found(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    for step in (1, 2):
        (workspace / "a.txt").write_text(f"{step}\n")
        saved = run(service.save("[step-9] edit", step=step)).checkpoint
        assert (saved.step, saved.message) == (step, f"[step-{step}] edit")
    assert run(service.restore(step=1)).success
    assert (workspace / "a.txt").read_text() == "1\n"
    assert run(service.get_checkpoint_by_step(2)).step == 2
    assert run(service.get_checkpoint_by_step(5)) is None
    assert run(service.restore(step=99)).error == "No checkpoint found for step 99"
    assert run(service.restore("abc", step=1)).error == "Provide either checkpoint_id or step, not both"
    assert run(service.restore()).error == "No checkpoint id or step provided"
    assert run(service.save("x", step=-1)).error == "step must be a non-negative integer"


def test_rewind_counts_from_the_current_checkpoint(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    for word in ("one", "two", "three"):
        (workspace / "a.txt").write_text(word)
        run(service.save(word))
    assert run(service.rewind()).checkpoint.message == "two"
    assert run(service.rewind()).checkpoint.message == "one"
    assert (workspace / "a.txt").read_text() == "one"
    # Later checkpoints are still listed and can be restored.
    assert messages(run, service) == ["three", "two", "one", "Initial checkpoint"]
    (workspace / "a.txt").write_text("another way")
    assert run(service.save("four")).success
    assert run(service.rewind()).checkpoint.message == "one"
    assert run(service.rewind(0)).error == "steps must be >= 1"
    assert run(service.rewind(2)).error == "Cannot rewind 2 step(s): only 2 checkpoint(s) available"
    three = next(one for one in run(service.list()) if one.message == "three")
    assert run(service.restore(three)).success
    assert (workspace / "a.txt").read_text() == "three"


def test_restore_saves_unsaved_work_first(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a.txt").write_text("one")
    saved = run(service.save("One"))
    (workspace / "a.txt").write_text("unsaved")
    run(service.restore(saved))
    newest = run(service.list_checkpoints(limit=1))[0]
    assert newest.message == "[pre-restore] auto-save"
    run(service.restore(newest.id))
    assert (workspace / "a.txt").read_text() == "unsaved"


def test_missing_checkpoint_is_an_error_and_changes_nothing(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a.txt").write_text("one")
    told: list[Any] = []
    service.on(CheckpointEvent.ERROR, told.append)
    result = run(service.restore("ffffffff"))
    assert not result.success
    assert told == [{"error": result.error}]
    assert (workspace / "a.txt").read_text() == "one"
    assert messages(run, service) == ["Initial checkpoint"]


def test_every_event_is_emitted_and_failing_handlers_are_ignored(
    run: Run, workspace: Path, tmp_path: Path
) -> None:
    service = CheckpointService(str(workspace), str(tmp_path / "storage"), max_checkpoints=2)
    told: list[tuple[str, Any]] = []

    def fail(_: Any) -> None:
        raise RuntimeError("error in a handler")

    for event in CheckpointEvent:
        service.on(event, fail)
        service.on(event, lambda data, event=event: told.append((event.value, data)))
    run(service.initialize())
    for word in ("one", "two", "three"):
        (workspace / "a.txt").write_text(word)
        saved = run(service.save(word)).checkpoint
    restored = run(service.rewind()).checkpoint
    assert [name for name, _ in told] == [
        "initialized",
        "checkpoint_created",
        "checkpoint_created",
        "checkpoints_pruned",
        "checkpoint_created",
        "checkpoint_restored",
    ]
    assert told[0][1] == {"workspace": str(workspace)}
    assert told[3][1] == {"action": "pruned", "removed_count": 1}
    assert (told[4][1], told[5][1]) == (saved, restored)


def test_handler_may_be_a_coroutine(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    told: list[str] = []

    async def hear(checkpoint: Any) -> None:
        told.append(checkpoint.message)

    service.on(CheckpointEvent.CHECKPOINT_CREATED, hear)
    (workspace / "a.txt").write_text("one")
    run(service.save("One"))
    assert told == ["One"]


def test_diff_compares_checkpoints_and_the_workspace(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a.txt").write_text("1\n2\n")
    (workspace / "gone.txt").write_text("gone\n")
    first = run(service.save("First"))
    (workspace / "a.txt").write_text("1\nzwei\n")
    (workspace / "gone.txt").unlink()
    (workspace / "sub").mkdir()
    (workspace / "sub/new.txt").write_text("new\n")
    second = run(service.save("Second"))
    diff = run(service.diff(first, second.checkpoint.id))
    assert (diff.from_checkpoint, diff.to_checkpoint) == (
        first.checkpoint.short_id,
        second.checkpoint.short_id,
    )
    assert (diff.added_files, diff.modified_files, diff.deleted_files) == (
        ["sub/new.txt"],
        ["a.txt"],
        ["gone.txt"],
    )
    assert (diff.total_additions, diff.total_deletions) == (2, 2)
    changed = next(file for file in diff.files if file.path == "a.txt")
    assert (changed.before_content, changed.after_content) == ("1\n2\n", "1\nzwei\n")
    assert changed.absolute_path == str(workspace / "a.txt")
    assert "-2\n+zwei\n" in diff.diff_content
    # Without arguments: from the checkpoint before the current one to the workspace.
    (workspace / "a.txt").write_text("1\nzwei\n3\n")
    now = run(service.diff())
    assert (now.from_checkpoint, now.to_checkpoint) == (first.checkpoint.short_id, None)
    assert {file.path: file.status for file in now.files}["a.txt"] == "modified"
    assert run(service.diff("ffffffff")).files == []


def test_uninitialized_service_returns_errors(run: Run, workspace: Path, tmp_path: Path) -> None:
    service = CheckpointService(str(workspace), str(tmp_path / "storage"))
    assert not service.is_initialized
    for asked in (service.save("x"), service.restore("x"), service.rewind()):
        assert run(asked).error == "Service not initialized"
    assert run(service.list_checkpoints()) == run(service.list()) == []
    assert run(service.get("x")) is None
    assert run(service.diff()).to_dict()["from_checkpoint"] == ""


def test_protected_directories_are_refused(run: Run, tmp_path: Path) -> None:
    places = ("~", "~/Documents", "/", "/tmp", "/var", "/etc", "/usr", tempfile.gettempdir())
    assert all(is_protected(os.path.expanduser(place)) for place in places)
    storage = str(tmp_path / "storage")
    for place in ("~", "/", "/etc", str(tmp_path / "missing")):
        assert run(CheckpointService(place, storage).initialize()) is False
    assert run(CheckpointService(str(tmp_path), storage, enabled=False).initialize()) is False


def test_checkpoints_can_be_deleted(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    for word in ("one", "two"):
        (workspace / "a.txt").write_text(word)
        run(service.save(word))
    one = run(service.list())[1]
    assert run(service.get(one.id)) == run(service.get_checkpoint(one.short_id)) == one
    assert run(service.delete(one.id)) is True
    assert run(service.delete(one.id)) is False
    assert messages(run, service) == ["two", "Initial checkpoint"]
    place = service.checkpoint_dir
    assert os.path.exists(service.git_dir)
    assert run(service.delete_all()) is True
    assert not os.path.exists(place)
    assert not service.is_initialized
    assert (workspace / "a.txt").read_text() == "two"
    assert run(service.initialize())
    assert messages(run, service) == ["Initial checkpoint"]


def test_checkpoints_survive_cleanup(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a.txt").write_text("one")
    run(service.save("One"))
    run(service.cleanup())
    assert not service.is_initialized
    assert messages(run, begin()) == ["One", "Initial checkpoint"]


def test_limit_of_checkpoints_is_kept(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin(max_checkpoints=2)
    for word in ("one", "two", "three"):
        (workspace / "a.txt").write_text(word)
        run(service.save(word))
    assert messages(run, service) == ["three", "two"]


def test_pruned_checkpoints_can_still_be_restored(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin(max_checkpoints=3)
    saved = []
    for number in range(22):
        (workspace / "a.txt").write_text(str(number))
        saved.append(run(service.save(str(number))).checkpoint)
    assert messages(run, service) == ["21", "20", "19"]
    assert run(service.rewind(12)).checkpoint == saved[9]
    assert (workspace / "a.txt").read_text() == "9"
    assert run(service.restore(saved[2].id)).success
    assert run(service.get_checkpoint(saved[2].id)) is None
    # An explicitly deleted checkpoint cannot be restored.
    (workspace / "a.txt").write_text("unsaved")
    assert run(service.delete(run(service.list())[0].id))
    assert not run(service.restore(saved[21].id)).success


@pytest.mark.parametrize("storage", ["st", "./st", Path("st")])
def test_service_saves_and_restores_with_relative_paths_after_a_change_of_directory(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch, storage: str | Path
) -> None:
    (workspace.parent / "elsewhere").mkdir()
    monkeypatch.chdir(workspace.parent)
    service = CheckpointService(workspace.name, storage)  # type: ignore[arg-type]
    assert run(service.initialize())
    (workspace / "a").write_text("1")
    saved = run(service.save("one"))
    assert (saved.success, saved.error) == (True, None)
    (workspace / "a").write_text("2")
    monkeypatch.chdir("elsewhere")
    assert run(service.save("two")).success
    assert run(service.restore(saved)).success
    assert (workspace / "a").read_text() == "1"
    assert sorted(path.name for path in workspace.parent.iterdir()) == ["elsewhere", "st", "workspace"]
