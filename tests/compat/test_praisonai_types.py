"""PraisonAI's types: names, defaults and the order of fields."""

from __future__ import annotations

import inspect
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from git_envhist.compat import praisonai
from git_envhist.compat.praisonai.service import CheckpointService
from git_envhist.compat.praisonai.types import (
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
    FileDiff,
)

AT = datetime(2026, 3, 6, 14, 30, tzinfo=UTC)


def test_every_name_exists_in_the_package_and_its_modules() -> None:
    from git_envhist.compat.praisonai import service, types

    assert praisonai.CheckpointService is service.CheckpointService
    for name in ("Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "FileDiff"):
        assert getattr(praisonai, name) is getattr(types, name)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        praisonai.__getattr__("Nothing")


def test_service_has_the_original_parameters_in_order() -> None:
    taken = inspect.signature(CheckpointService).parameters
    assert {name: one.default for name, one in taken.items()} == {
        "workspace_dir": inspect.Parameter.empty,
        "storage_dir": None,
        "enabled": True,
        "auto_checkpoint": True,
        "max_checkpoints": 100,
        "user_name": "PraisonAI Checkpoints",
        "user_email": "checkpoints@praison.ai",
        "max_file_size": 2 * 1024 * 1024,
        "exclude_patterns": None,
    }


def test_configuration_has_the_original_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CheckpointConfig("~/project")
    assert config.workspace_dir == os.path.expanduser("~/project")
    assert (config.enabled, config.auto_checkpoint, config.max_checkpoints) == (True, True, 100)
    assert {".git", "__pycache__", "node_modules", ".env", "*.log"} <= set(config.exclude_patterns)
    assert CheckpointConfig("~/project", exclude_patterns=[]).exclude_patterns == []
    assert os.path.basename(config.storage_dir or "") == "checkpoints"
    assert len(os.path.basename(config.get_checkpoint_dir())) == 12
    monkeypatch.setenv("PRAISONAI_GIT_USER_NAME", "Somebody")
    monkeypatch.setenv("PRAISONAI_HOME", "~/elsewhere")
    assert CheckpointConfig("x").user_name == "Somebody"
    assert CheckpointConfig("x").storage_dir == os.path.expanduser("~/elsewhere/checkpoints")


def test_checkpoint_is_created_as_in_code_and_documentation() -> None:
    by_code = Checkpoint("abc123def4567", "abc123de", "Test", AT)
    by_document = Checkpoint(id="abc123def4567", message="Test", timestamp=AT, files_changed=["src/main.py"])
    assert by_code.files_changed == []
    assert by_document.short_id == by_code.short_id == "abc123de"
    assert by_document.to_dict() == {
        "id": "abc123def4567",
        "short_id": "abc123de",
        "message": "Test",
        "timestamp": "2026-03-06T14:30:00+00:00",
        "files_changed": ["src/main.py"],
        "insertions": 0,
        "deletions": 0,
        "step": None,
        "metadata": {},
    }


def test_commit_becomes_a_checkpoint() -> None:
    made = Checkpoint.from_git_commit("abc123def456789", "Test", "2026-03-06T14:30:00Z")
    assert (made.id, made.short_id, made.timestamp) == ("abc123def456789", "abc123de", AT)


def test_diff_has_both_sets_of_names() -> None:
    files = [
        FileDiff("a", "/w/a", "added", 10),
        FileDiff("b", "/w/b", "modified", 5, 3),
        FileDiff("c", "/w/c", "deleted", 0, 7),
    ]
    diff = CheckpointDiff("abc", "def", files)
    assert (diff.total_additions, diff.total_deletions) == (15, 10)
    assert (diff.from_id, diff.to_id) == (diff.from_checkpoint, diff.to_checkpoint) == ("abc", "def")
    assert (diff.added_files, diff.modified_files, diff.deleted_files) == (["a"], ["b"], ["c"])
    assert CheckpointDiff(from_id="abc", to_id="def", files=files) == diff
    assert set(diff.to_dict()) == {
        "from_checkpoint",
        "to_checkpoint",
        "files",
        "total_additions",
        "total_deletions",
    }


def test_result_prints_as_its_id() -> None:
    good, bad = CheckpointResult.ok(Checkpoint("abc123", "abc1", "Test", AT)), CheckpointResult.fail("why")
    assert (good.success, good.error, str(good)) == (True, None, "abc123")
    assert (bad.success, bad.checkpoint, bad.error, str(bad)) == (False, None, "why", "")


def test_events_are_the_original_ones() -> None:
    assert [event.value for event in CheckpointEvent] == [
        "initialized",
        "checkpoint_created",
        "checkpoint_restored",
        "checkpoints_pruned",
        "error",
    ]
    assert CheckpointEvent.ERROR == "error"


def test_relative_paths_are_resolved_once_when_the_configuration_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRAISONAI_HOME", "home")
    made = [CheckpointConfig("ws", "st"), CheckpointConfig("./ws", "./st"), CheckpointConfig("ws")]
    places = [one.get_checkpoint_dir() for one in made]
    monkeypatch.chdir("elsewhere")
    assert {one.workspace_dir for one in made} == {str(tmp_path / "ws")}
    assert [one.storage_dir for one in made] == [
        *[str(tmp_path / "st")] * 2,
        str(tmp_path / "home/checkpoints"),
    ]
    assert [one.get_checkpoint_dir() for one in made] == places
