"""chimera's ghost commits: saving files before each tool call, and undo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from git_envhist.compat.chimera.checkpoints_ghost import GhostCommitManager
from tests.support.oracle import listing


def test_undo_restores_one_snapshot_after_another(workspace: Path) -> None:
    ghost = GhostCommitManager(str(workspace))
    (workspace / "a.py").write_text("v1")
    assert ghost.snapshot("first", ["a.py"]) == "ghost-1"
    (workspace / "a.py").write_text("v2")
    assert ghost.snapshot("second", ["a.py", "new.py"]) == "ghost-2"
    (workspace / "a.py").write_text("v3")
    (workspace / "new.py").write_text("new")
    top = ghost.peek()
    assert top is not None
    assert (top.id, top.label, top.files) == ("ghost-2", "second", {"a.py": "v2", "new.py": ""})
    assert [one.label for one in ghost.history] == ["first", "second"]
    assert ghost.undo() == ["restored: a.py", "deleted: new.py"]
    assert (workspace / "a.py").read_text() == "v2"
    assert not (workspace / "new.py").exists()
    assert ghost.depth == 1
    assert ghost.undo(5) == ["restored: a.py"]
    assert (workspace / "a.py").read_text() == "v1"
    ghost.snapshot("never made", ["never.py"])
    assert ghost.undo() == []
    assert ghost.undo() == []
    assert ghost.peek() is None


def test_every_kind_of_file_is_restored_in_another_process(workspace: Path) -> None:
    (workspace / "empty").write_bytes(b"")
    (workspace / "crlf").write_bytes(b"a\r\n\0\xff")
    (workspace / "sub").mkdir()
    (workspace / "sub/run").write_bytes(b"#!/bin/sh\n")
    (workspace / "sub/run").chmod(0o755)
    (workspace / "target").write_text("behind the link")
    (workspace / "link").symlink_to("target")
    before = listing(workspace)
    named = ["empty", "crlf", "sub/run", "link"]
    GhostCommitManager(str(workspace)).snapshot("all of them", named)
    (workspace / "empty").write_text("not empty")
    (workspace / "crlf").write_bytes(b"a\n")
    (workspace / "sub/run").chmod(0o644)
    (workspace / "link").write_text("written through")
    again = GhostCommitManager(str(workspace))
    assert again.depth == 1
    assert again.undo() == [f"restored: {name}" for name in named]
    assert listing(workspace) == before


def test_undo_changes_only_the_named_paths(workspace: Path) -> None:
    ghost = GhostCommitManager(str(workspace))
    (workspace / "other").write_text("1")
    ghost.snapshot("new file", ["deep/er/new.py", "odd [*] !name"])
    (workspace / "deep/er").mkdir(parents=True)
    (workspace / "deep/er/new.py").write_text("new")
    (workspace / "deep/er/beside").write_text("another file")
    (workspace / "odd [*] !name").write_text("odd")
    (workspace / "other").write_text("2")
    assert ghost.undo() == ["deleted: deep/er/new.py", "deleted: odd [*] !name"]
    assert sorted(os.listdir(workspace / "deep/er")) == ["beside"]
    assert (workspace / "other").read_text() == "2"


def test_snapshot_skips_a_path_outside_the_directory_and_raises_nothing(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("outside")
    (workspace / "out").symlink_to(tmp_path)
    ghost = GhostCommitManager(str(workspace))
    for path in ("../x", str(tmp_path / "x"), "out/x", "."):
        ghost.snapshot("no", [path])
        (tmp_path / "x").write_text("changed")
        assert ghost.undo() == [f"skipped: {path} (it is outside the working directory)"]
        assert (tmp_path / "x").read_text() == "changed"
    inside = str(workspace / "a")
    ghost.snapshot("yes", [inside])
    (workspace / "a").write_text("1")
    assert ghost.undo() == [f"deleted: {inside}"]


def test_oldest_snapshots_are_dropped_first(workspace: Path) -> None:
    ghost = GhostCommitManager(str(workspace), max_snapshots=2)
    for number in range(4):
        (workspace / "a").write_text(str(number))
        ghost.snapshot(f"{number}", ["a"])
    assert [one.id for one in ghost.history] == ["ghost-3", "ghost-4"]
    ghost.undo(9)
    assert (workspace / "a").read_text() == "2"
    ghost.snapshot("nothing", [])
    assert ghost.peek() is not None
    assert ghost.depth == 1
    ghost.clear()
    assert (ghost.depth, ghost.history) == (0, [])


def test_snapshot_without_paths_uses_those_of_the_last(workspace: Path) -> None:
    ghost = GhostCommitManager(str(workspace))
    assert ghost.snapshot("nothing named yet") == "ghost-1"
    assert ghost.history[0].files == {}
    (workspace / "a").write_text("1")
    ghost.snapshot("first", ["a"])
    (workspace / "a").write_text("2")
    ghost.snapshot("again")
    assert ghost.history[-1].files == {"a": "2"}


def test_undo_restores_a_named_file_that_envhistignore_excludes(workspace: Path) -> None:
    (workspace / ".envhistignore").write_text("*.log\n")
    (workspace / "old.log").write_text("old")
    ghost = GhostCommitManager(str(workspace))
    ghost.snapshot("logs", ["old.log", "new.log"])
    (workspace / "old.log").write_text("changed")
    (workspace / "new.log").write_text("new")
    assert ghost.undo() == ["restored: old.log", "deleted: new.log"]
    assert sorted(path.name for path in workspace.iterdir()) == [".envhistignore", "old.log"]
    assert (workspace / "old.log").read_text() == "old"


def test_undo_reports_unrestorable_paths_as_skipped(workspace: Path, tmp_path: Path) -> None:
    hook = workspace / ".git/hooks/pre-commit"
    hook.parent.mkdir(parents=True)
    (tmp_path / "target").write_text("old")
    (workspace / "out").symlink_to(tmp_path / "target")
    ghost = GhostCommitManager(str(workspace))
    ghost.snapshot("both", [".git/hooks/pre-commit", "out", "a"])
    for path in (hook, workspace / "out", workspace / "a"):
        path.write_text("new")
    assert ghost.undo() == [
        "skipped: out (it leads out of the working directory)",
        "deleted: a",
        "skipped: .git/hooks/pre-commit (it belongs to a git repository)",
    ]
    assert hook.read_text() == (tmp_path / "target").read_text() == "new"
    # A link that was replaced by a file is restored.
    ghost.snapshot("the link", ["out"])
    (workspace / "out").unlink()
    (workspace / "out").write_text("a file")
    assert ghost.undo() == ["restored: out"]
    assert (workspace / "out").is_symlink()


def test_undo_of_a_path_below_a_file_reports_the_result(workspace: Path) -> None:
    (workspace / "file").write_text("1")
    ghost = GhostCommitManager(str(workspace))
    ghost.snapshot("below a file", ["file/below"])
    assert ghost.undo() == []
    ghost.snapshot("below a file", ["file/below"])
    (workspace / "file").unlink()
    (workspace / "file").mkdir()
    (workspace / "file/below").write_text("2")
    assert ghost.undo() == ["deleted: file/below"]
    assert not (workspace / "file/below").exists()


def test_stack_of_a_home_directory_takes_paths_as_objects(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace))
    ghost = GhostCommitManager(workspace)
    ghost.snapshot("an object", [Path("a")])
    (workspace / "a").write_text("1")
    assert ghost.undo() == ["deleted: a"]
    assert not (workspace / "a").exists()


TOOL = """
import sys
from pathlib import Path
from git_envhist.compat.chimera import GhostCommitManager
top = Path(sys.argv[1])
ghost = GhostCommitManager(top)
for number in (1, 2):
    ghost.snapshot(f"write {number}", ["a", "b"])
    (top / "a").write_text(f"tool {number}")
"""


@pytest.mark.full
def test_undo_in_a_later_process_skips_files_changed_since(workspace: Path) -> None:
    def run_tool() -> GhostCommitManager:
        (workspace / "a").write_text("begin")
        subprocess.run([sys.executable, "-c", TOOL, str(workspace)], check=True)
        return GhostCommitManager(workspace)

    ghost = run_tool()
    assert ghost.undo(2) == ["restored: a", "restored: a"]
    assert (workspace / "a").read_text() == "begin"
    ghost = run_tool()
    (workspace / "a").write_text("the user")
    skipped = ["skipped: a (changed since that process ended; undo(force=True) restores it)"]
    assert ghost.undo(2) == skipped
    # Undo restores what the user wrote before this process changed it, and nothing older.
    ghost.snapshot("write 3", ["a"])
    (workspace / "a").write_text("tool 3")
    assert ghost.undo(9) == ["restored: a", *skipped]
    assert (workspace / "a").read_text() == "the user"
    assert ghost.depth == 2
    assert ghost.undo(2, force=True) == ["restored: a", "restored: a"]
    assert (workspace / "a").read_text() == "begin"
