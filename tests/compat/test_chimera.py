"""chimera's interface: named checkpoints, and environments that can be restored."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from git_envhist.compat import chimera
from git_envhist.compat.chimera.checkpoints import CheckpointManager
from git_envhist.compat.chimera.env.git_env import GitEnvironment
from git_envhist.compat.chimera.env.local import LargeCheckpointWarning, LocalEnvironment
from git_envhist.compat.chimera.storage import CheckpointInfo
from tests.support.oracle import listing
from tests.support.repository import Repo


class InMemory:
    """An environment that a user of the library implements."""

    def __init__(self) -> None:
        self.state, self.kept = "one", dict[str, str]()

    def checkpoint(self) -> str:
        self.kept[name := f"id-{len(self.kept)}"] = self.state
        return name

    def restore(self, checkpoint_id: str) -> None:
        self.state = self.kept[checkpoint_id]


def names(manager: CheckpointManager) -> list[str]:
    return [info.name for info in manager.list_checkpoints()]


def test_every_name_exists_in_the_package_and_its_modules() -> None:
    from git_envhist.compat.chimera import checkpoints, checkpoints_ghost
    from git_envhist.compat.chimera.env import git_env, local

    assert chimera.CheckpointManager is checkpoints.CheckpointManager
    assert chimera.CheckpointInfo is checkpoints.CheckpointInfo
    assert chimera.GhostCommitManager is checkpoints_ghost.GhostCommitManager
    assert chimera.GhostSnapshot is checkpoints_ghost.GhostSnapshot
    assert (chimera.LocalEnvironment, chimera.GitEnvironment) == (
        local.LocalEnvironment,
        git_env.GitEnvironment,
    )
    assert sorted(chimera.__all__) == chimera.__all__ == sorted(chimera.MODULES)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        chimera.__getattr__("Nothing")


def test_checkpoint_time_has_the_original_format() -> None:
    at = time.mktime((2026, 3, 6, 14, 30, 0, 0, 0, -1))
    assert CheckpointInfo("1", "a", at).time_str == "2026-03-06 14:30:00"
    assert CheckpointInfo("1", "a", at).description == ""


def test_any_environment_gets_named_checkpoints() -> None:
    env = InMemory()
    manager = CheckpointManager(env)
    assert manager.undo() is None
    first = manager.create()
    assert (first.id, first.name, first.description) == ("id-0", "checkpoint-1", "")
    env.state = "two"
    manager.create("named", "why")
    env.state = "three"
    manager.create("named")
    assert names(manager) == ["checkpoint-1", "named", "named"]
    assert manager.restore_by_name("named").id == "id-2"
    assert manager.restore_by_id("id-1").description == "why"
    assert env.state == "two"
    for _ in range(2):
        undone = manager.undo()
        assert undone is not None
        assert undone.id == "id-2"
    assert manager.get("checkpoint-1") == first
    assert manager.get("nothing") is None
    with pytest.raises(KeyError, match="No checkpoint named 'nothing'"):
        manager.restore_by_name("nothing")
    with pytest.raises(KeyError, match="No checkpoint with ID 'id-9'"):
        manager.restore_by_id("id-9")
    manager.clear()
    assert names(manager) == []


def test_automatic_checkpoints_follow_the_interval() -> None:
    manager = CheckpointManager(InMemory(), interval=3)
    assert manager.auto_checkpoint is False
    assert manager.automatic("not wanted") is None
    manager.auto_checkpoint = True
    made = [manager.automatic(f"{number}") for number in range(7)]
    assert [info.description for info in made if info is not None] == ["0", "3", "6"]
    loop = CheckpointManager(InMemory())
    few = loop.every(2)
    given = [few.create(description=f"After {number}") for number in range(4)]
    assert [info.description for info in given] == ["After 0", "After 0", "After 2", "After 2"]
    assert few.create("named").name == "named"
    assert names(loop) == ["checkpoint-1", "checkpoint-2", "named"]


def test_directory_is_restored_in_another_process(workspace: Path) -> None:
    env = LocalEnvironment(working_dir=str(workspace))
    env.setup()
    manager = CheckpointManager(env)
    env.write_file("src/app.py", "one\n")
    first = manager.create("first", "clean")
    env.write_file("src/app.py", "two\n")
    env.write_file("new.txt", "new\n")
    program = (
        "import sys\n"
        "from git_envhist.compat.chimera import CheckpointManager\n"
        "manager = CheckpointManager(sys.argv[1])\n"
        "print(manager.create().name, manager.restore_by_name('first').description)\n"
    )
    words = [sys.executable, "-c", program, str(workspace)]
    output = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (output.stdout, output.stderr) == ("checkpoint-2 clean\n", "")
    assert env.list_files() == ["src/app.py"]
    assert env.read_file("src/app.py") == "one\n"
    assert manager.list_checkpoints()[0] == first
    assert names(manager) == ["first", "checkpoint-2"]
    manager.clear()
    assert names(manager) == []
    # clear() removes the names; the checkpoints still exist.
    env.restore("1")
    assert env.list_files() == ["new.txt", "src/app.py"]


def test_checkpoint_numbers_continue_above_copies(workspace: Path) -> None:
    env = LocalEnvironment(str(workspace))
    assert (env.checkpoint(), env.checkpoint()) == ("0", "1")
    (workspace / ".chimera_checkpoints/7").mkdir(parents=True)
    assert env.checkpoint() == "8"
    with pytest.raises(ValueError, match="Checkpoint 41 not found"):
        env.restore("41")


def test_copy_made_by_chimera_is_restored(workspace: Path) -> None:
    env = LocalEnvironment(str(workspace))
    copied = workspace / ".chimera/checkpoints/3"
    (copied / "sub").mkdir(parents=True)
    (copied / "sub/old.py").write_text("old")
    (copied / "run").write_text("#!/bin/sh\n")
    (copied / "run").chmod(0o755)
    env.write_file("new.py", "new")
    env.write_file(".venv/dep", "stays")
    assert env.checkpoint() == "4"
    env.restore("3")
    assert env.list_files() == [".venv/dep", "run", "sub/old.py"]
    assert os.access(workspace / "run", os.X_OK)
    env.restore("4")
    assert env.list_files() == [".venv/dep", "new.py"]
    env.restore("3")
    assert env.read_file("sub/old.py") == "old"
    assert (copied / "run").exists()


def test_large_checkpoint_warns(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("git_envhist.compat.chimera.env.local.CHECKPOINT_SIZE_WARN_BYTES", 1024)
    env = LocalEnvironment(str(workspace))
    env.write_file(".venv/large", "x" * 4096)
    env.checkpoint()
    env.write_file("large", "x" * 4096)
    with pytest.warns(LargeCheckpointWarning, match="retain"):
        env.checkpoint()


def test_restore_is_exact_and_keeps_excluded_directories(workspace: Path) -> None:
    (workspace / "empty").write_bytes(b"")
    (workspace / "crlf.txt").write_bytes(b"a\r\nb\r\n")
    (workspace / "run").write_bytes(b"\x7fELF\0\xff")
    (workspace / "run").chmod(0o755)
    (workspace / "link").symlink_to("run")
    (workspace / "site/node_modules").mkdir(parents=True)
    (workspace / "site/page").write_text("page")
    (workspace / "build").write_text("a file of that name is source")
    left = workspace / "site/node_modules/dep.js"
    left.write_text("before")
    env = LocalEnvironment(str(workspace))
    kept = env.checkpoint()
    before = listing(workspace)
    for path in ("empty", "crlf.txt", "run", "link", "build"):
        (workspace / path).unlink()
    (workspace / "empty").mkdir()
    subprocess.run(["rm", "-rf", str(workspace / "site/page")], check=True)
    env.restore(kept)
    assert listing(workspace) == before
    left.write_text("after")
    env.restore(kept)
    assert left.read_text() == "after"


def test_paths_outside_the_directory_are_refused(workspace: Path) -> None:
    env = LocalEnvironment(str(workspace))
    (workspace / "out").symlink_to("/etc")
    for path in ("../x", "/etc/passwd", "out/passwd"):
        with pytest.raises(PermissionError, match="Path escapes workdir"):
            env.read_file(path)
        with pytest.raises(PermissionError, match="Path escapes workdir"):
            env.write_file(path, "x")
    with pytest.raises(FileNotFoundError, match="File not found: nothing"):
        env.read_file("nothing")


def test_home_directory_is_not_restored(hermetic: Path) -> None:
    env = LocalEnvironment(str(hermetic))
    kept = env.checkpoint()
    with pytest.raises(PermissionError, match="is root or HOME"):
        env.restore(kept)


def test_limit_of_checkpoints_is_kept(workspace: Path) -> None:
    env = LocalEnvironment(str(workspace))
    (workspace / ".chimera").mkdir()
    (workspace / ".chimera/config.toml").write_text("[storage.checkpoints]\nretain = 2\n")
    for number in range(3):
        env.write_file("a", str(number))
        env.checkpoint()
    env.restore("1")
    assert env.read_file("a") == "1"
    with pytest.raises(ValueError, match="not found"):
        env.restore("0")


def test_concurrent_checkpoints_get_different_numbers(workspace: Path) -> None:
    given: list[str] = []
    threads = [
        threading.Thread(target=lambda: given.append(LocalEnvironment(str(workspace)).checkpoint()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == ["0", "1", "2", "3"]


def test_environment_has_the_original_parameters() -> None:
    taken = inspect.signature(LocalEnvironment).parameters
    assert [(name, taken[name].default) for name in ("test_cmd", "timeout", "session")] == [
        ("test_cmd", "python -m pytest"),
        ("timeout", 300),
        ("session", False),
    ]
    with pytest.raises(TypeError):
        LocalEnvironment()


def test_commands_and_tests_run_in_the_directory(workspace: Path) -> None:
    with LocalEnvironment(str(workspace), test_cmd="echo '3 passed, 1 failed, 2 errors'; exit 1") as env:
        done = env.run_command("pwd; echo no >&2; exit 3")
        assert (done.stdout, done.stderr, done.exit_code, done.success) == (
            f"{workspace}\n",
            "no\n",
            3,
            False,
        )
        tests = env.run_tests()
        assert (tests.passed, tests.failed, tests.errors, tests.total) == (3, 1, 2, 6)
        assert (tests.pass_rate, tests.all_passed) == (0.5, False)
        assert env.run_command("sleep 20", timeout=1).exit_code == 124
        assert env.has_session is False


def test_persistent_shell_keeps_its_state(workspace: Path) -> None:
    with LocalEnvironment(str(workspace), session=True) as env:
        assert env.list_shells() == ["main"]
        assert env.run_command("A=1; cd /").success
        assert env.run_command("echo $A $PWD; false").stdout == "1 /\n"
        env.create_shell("other")
        assert env.run_command("echo ${A:-none}", shell_name="other").stdout == "none\n"
        with pytest.raises(ValueError, match="Shell 'other' already exists"):
            env.create_shell("other")
        with pytest.raises(RuntimeError, match="Session already active"):
            env.start_session()
        late = env.run_command("echo begun; sleep 20", timeout=1)
        assert (late.exit_code, late.stderr) == (124, "Command timed out")
        assert env.run_command("echo again").stdout == "again\n"
        assert env.run_command("exit 7").exit_code == 7
    assert env.has_session is False
    with pytest.raises(RuntimeError, match="No active session"):
        env.run_in_session("true")


def test_clone_is_an_independent_copy(workspace: Path) -> None:
    env = LocalEnvironment(str(workspace))
    env.write_file("a", "1")
    copied = env.clone()
    copied.write_file("a", "2")
    assert (env.read_file("a"), copied.read_file("a")) == ("1", "2")
    assert copied.workdir.parent == workspace.parent
    git = GitEnvironment(str(workspace))
    git.setup()
    assert "initial" in git.clone().run_command("git log --oneline").stdout


def test_checkpoints_are_not_commits_of_the_branch(repo: Repo) -> None:
    repo.write(".gitignore", "*.db\n")
    repo.write("app.db", "rows")
    repo.write("new.txt", "staged")
    repo.git("add", "new.txt")
    before = listing(repo.path / ".git", without=())
    env = GitEnvironment(str(repo.path))
    env.setup()
    kept = env.checkpoint()
    assert len(kept) == 40
    repo.write("app.db", "other")
    repo.write("app.py", "edited")
    (repo.path / "later.txt").write_text("later")
    env.restore(kept)
    assert repo.read("app.db") == b"rows"
    assert not (repo.path / "later.txt").exists()
    assert listing(repo.path / ".git", without=()) == before


def test_git_environment_creates_a_repository(workspace: Path) -> None:
    (workspace / "a").write_text("1")
    with GitEnvironment(str(workspace)) as env:
        assert env.run_command("git log --format=%s").stdout == "initial\n"
        assert env.run_command("git ls-files").stdout == ""
        first = env.checkpoint()
        env.write_file("a", "2")
        second = env.checkpoint()
        env.restore(first)
        assert env.read_file("a") == "1"
        env.restore(second)
        assert env.read_file("a") == "2"
        assert env.run_command("git log --format=%s").stdout == "initial\n"


def test_renamed_directory_keeps_its_checkpoints(workspace: Path, tmp_path: Path) -> None:
    CheckpointManager(str(workspace)).create("first")
    renamed = workspace.rename(tmp_path / "renamed")
    assert names(CheckpointManager(renamed)) == ["first"]
    assert os.listdir(renamed) == []


def test_git_environment_runs_git_commands_for_the_librarys_workflow(workspace: Path) -> None:
    env = GitEnvironment(str(workspace))
    env.setup()
    assert env._git("checkout -b chimera/x").exit_code == 0
    assert env._git("rev-parse --abbrev-ref HEAD").stdout.strip() == "chimera/x"
