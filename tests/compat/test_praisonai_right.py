"""Cases in which PraisonAI's own service loses data or fails, and ours does not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from git_envhist.compat.praisonai.service import CheckpointService
from tests.support.oracle import listing
from tests.support.repository import Repo

Run = Callable[[Any], Any]
Begin = Callable[..., CheckpointService]


def save_change_and_restore(
    run: Run, service: CheckpointService, root: Path, change: Callable[[], None]
) -> None:
    """Save, change and restore; the tree must be equal to the saved one, compared with find and sha256sum."""
    saved = run(service.save("Before", allow_empty=True))
    before = listing(root)
    change()
    assert listing(root) != before
    assert run(service.restore(saved)).success
    assert listing(root) == before


def test_ignored_files_are_restored(run: Run, begin: Begin, workspace: Path) -> None:
    (workspace / ".gitignore").write_text("secret/\n*.db\n")
    (workspace / "secret").mkdir()
    (workspace / "secret/a").write_text("a")
    (workspace / "app.db").write_text("rows")

    def change() -> None:
        (workspace / "secret/a").unlink()
        (workspace / "app.db").write_text("other")

    save_change_and_restore(run, begin(), workspace, change)


def test_large_files_are_restored_unless_a_limit_is_set(run: Run, begin: Begin, workspace: Path) -> None:
    (workspace / "large.bin").write_bytes(os.urandom(3 << 20))
    save_change_and_restore(run, begin(), workspace, (workspace / "large.bin").unlink)
    limited = begin(max_file_size=100)
    (workspace / "small").write_text("small")
    saved = run(limited.save("Limited"))
    (workspace / "large.bin").write_bytes(b"x" * 200)
    (workspace / "small").write_text("other")
    run(limited.restore(saved))
    # A file over the limit is not saved, so the restore does not change it.
    assert (workspace / "large.bin").read_bytes() == b"x" * 200
    assert (workspace / "small").read_text() == "small"


def test_message_is_stored_unchanged(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    for number, message in enumerate(("a|b|c", "two\n\nparagraphs", "-m --amend", "grüße 💾")):
        (workspace / "a").write_text(str(number))
        saved = run(service.save(message))
        assert saved.checkpoint.message == message
        assert run(service.list(limit=1))[0].message == message


def test_files_and_directories_may_replace_each_other(run: Run, begin: Begin, workspace: Path) -> None:
    (workspace / "file").write_text("file")
    (workspace / "directory").mkdir()
    (workspace / "directory/inside").write_text("inside")
    (workspace / "link").symlink_to("file")
    (workspace / "empty").mkdir()

    def change() -> None:
        (workspace / "file").unlink()
        (workspace / "file").mkdir()
        (workspace / "file/now").write_text("now")
        (workspace / "directory/inside").unlink()
        (workspace / "directory").rmdir()
        (workspace / "directory").write_text("a file")
        (workspace / "link").unlink()
        (workspace / "link").mkdir()
        (workspace / "empty").rmdir()

    save_change_and_restore(run, begin(), workspace, change)


def test_modes_are_restored(run: Run, begin: Begin, workspace: Path) -> None:
    (workspace / "run.sh").write_text("#!/bin/sh\n")
    (workspace / "run.sh").chmod(0o750)
    (workspace / "closed").mkdir(0o700)
    (workspace / "closed/key").write_text("k")
    (workspace / "closed/key").chmod(0o600)

    def change() -> None:
        (workspace / "run.sh").chmod(0o644)
        (workspace / "closed").chmod(0o755)
        (workspace / "closed/key").chmod(0o666)

    save_change_and_restore(run, begin(), workspace, change)


def test_nested_repository_is_restored_with_its_history(run: Run, begin: Begin, workspace: Path) -> None:
    inner = workspace / "lib"
    git = ["git", "-C", str(inner)]
    subprocess.run(["git", "init", "-q", str(inner)], check=True)
    (inner / "code.py").write_text("code")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "inner"], check=True)
    service = begin()
    saved = run(service.save("Before"))
    subprocess.run(["rm", "-rf", str(inner)], check=True)
    assert run(service.restore(saved)).success
    assert (inner / "code.py").read_text() == "code"
    output = subprocess.run([*git, "log", "--format=%s"], capture_output=True, text=True, check=True)
    assert output.stdout == "inner\n"


def test_surrounding_git_repository_is_not_changed(run: Run, begin: Begin, repo: Repo) -> None:
    (repo.path / "new.txt").write_text("staged")
    repo.git("add", "new.txt")
    (repo.path / "app.py").write_text("edited")
    before = listing(repo.path / ".git", without=())
    service = begin(repo.path)
    saved = run(service.save("Before"))
    (repo.path / "app.py").write_text("edited again")
    assert run(service.restore(saved)).success
    assert (repo.path / "app.py").read_text() == "edited"
    assert listing(repo.path / ".git", without=()) == before


def test_concurrent_saves_are_kept_or_reported_as_unchanged(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()

    async def all_at_once() -> list[Any]:
        async def edit(number: int) -> Any:
            (workspace / f"{number}.txt").write_text(str(number))
            return await service.save(f"edit {number}", allow_empty=True)

        return await asyncio.gather(*(edit(number) for number in range(5)))

    results = run(all_at_once())
    assert all(result.success for result in results)
    assert len({result.checkpoint.id for result in results}) == 5
    assert len(run(service.list())) == 6


def test_two_services_and_two_loops_share_one_workspace(run: Run, begin: Begin, workspace: Path) -> None:
    one, other = begin(), begin()
    (workspace / "a").write_text("1")
    saved = run(one.save("One"))
    assert asyncio.run(other.list())[0].id == saved.checkpoint.id
    (workspace / "a").write_text("2")
    assert asyncio.run(other.restore(saved)).success
    assert (workspace / "a").read_text() == "1"


def test_concurrent_processes_initialize_once(
    run: Run, begin: Begin, workspace: Path, tmp_path: Path
) -> None:
    program = (
        "import asyncio, sys\n"
        "from git_envhist.compat.praisonai import CheckpointService\n"
        "async def main():\n"
        "    service = CheckpointService(sys.argv[1], sys.argv[2])\n"
        "    await service.initialize()\n"
        "    assert (await service.save(sys.argv[3], allow_empty=True)).success\n"
        "asyncio.run(main())\n"
    )
    words = [sys.executable, "-c", program, str(workspace), str(tmp_path / "storage")]
    running = [subprocess.Popen([*words, f"save {number}"]) for number in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    told = [one.message for one in run(begin().list())]
    assert sorted(told[:3]) == ["save 0", "save 1", "save 2"]
    assert told[3:] == ["Initial checkpoint"]


def test_renamed_workspace_keeps_its_checkpoints(
    run: Run, begin: Begin, workspace: Path, tmp_path: Path
) -> None:
    service = begin()
    (workspace / "a").write_text("1")
    saved = run(service.save("One"))
    renamed = workspace.rename(tmp_path / "renamed")
    (renamed / "a").write_text("2")
    there = begin(renamed)
    assert run(there.restore(saved)).success
    assert (renamed / "a").read_text() == "1"
    # Another directory at the old path gets a new history.
    workspace.mkdir()
    assert [one.message for one in run(begin().list())] == ["Initial checkpoint"]


def test_removed_workspace_can_be_restored(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    (workspace / "a").write_text("1")
    saved = run(service.save("One"))
    aside = workspace.rename(workspace.parent / "aside")
    workspace.mkdir()
    again = begin()
    assert run(again.restore(saved)).success
    assert (workspace / "a").read_text() == "1"
    # The renamed directory still has its own history.
    assert "One" in [one.message for one in run(begin(aside).list())]


def test_empty_list_of_patterns_excludes_nothing(run: Run, begin: Begin, workspace: Path) -> None:
    for name in ("app.log", ".env", "node_modules"):
        (workspace / name).write_text("original")
    usual = begin()
    saved = run(usual.save("Usual", allow_empty=True))
    for name in ("app.log", ".env", "node_modules"):
        (workspace / name).write_text("changed")
    run(usual.restore(saved))
    assert (workspace / "app.log").read_text() == "changed"
    every = begin(exclude_patterns=[])
    saved = run(every.save("Every"))
    for name in ("app.log", ".env", "node_modules"):
        (workspace / name).write_text("once more")
    run(every.restore(saved))
    assert [(workspace / name).read_text() for name in ("app.log", ".env", "node_modules")] == ["changed"] * 3


def test_storage_in_the_workspace_is_not_captured(run: Run, workspace: Path) -> None:
    service = CheckpointService(str(workspace), str(workspace / "state"))
    assert run(service.initialize())
    (workspace / "a").write_text("1")
    saved = run(service.save("One"))
    assert saved.checkpoint.files_changed == ["a"]
    (workspace / "a").write_text("2")
    assert run(service.restore(saved)).success
    assert len(run(service.list())) == 3


def test_history_is_available_in_another_process(
    run: Run, begin: Begin, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = begin()
    (workspace / "a").write_text("1")
    saved = run(service.save("One"))
    (workspace / "a").write_text("2")
    monkeypatch.delenv("GIT_ENVHIST_WORKERS")
    program = (
        "import asyncio, sys\n"
        "from git_envhist.compat.praisonai import CheckpointService\n"
        "async def main():\n"
        "    service = CheckpointService(sys.argv[1], sys.argv[2])\n"
        "    await service.initialize()\n"
        "    print((await service.restore(sys.argv[3])).success)\n"
        "asyncio.run(main())\n"
    )
    words = [sys.executable, "-c", program, str(workspace), str(tmp_path / "storage"), saved.checkpoint.id]
    output = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (output.stdout, output.stderr) == ("True\n", "")
    assert (workspace / "a").read_text() == "1"


def test_conversation_is_restored_with_the_files(run: Run, begin: Begin, workspace: Path) -> None:
    service = begin()
    messages = [{"role": "user", "content": "one"}]
    service.bind(messages)
    (workspace / "a").write_text("1")
    saved = run(service.save("turn 1"))
    assert saved.checkpoint.metadata["message_count"] == 1
    messages += [{"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    (workspace / "a").write_text("2")
    later = run(service.save("turn 2"))
    assert run(service.rewind()).success
    assert messages == [{"role": "user", "content": "one"}]
    # Restoring the later checkpoint restores its messages, which are stored sealed with it.
    assert run(service.restore(later)).success
    assert [message["content"] for message in messages] == ["one", "two", "three"]


def test_agent_or_session_store_provides_the_conversation(run: Run, begin: Begin, workspace: Path) -> None:
    class Agent:
        def __init__(self) -> None:
            self.chat_history = ["one"]

    class Store:
        def __init__(self) -> None:
            self.messages = ["one"]

        def get_chat_history(self, session_id: str) -> list[str]:
            return self.messages

        def set_chat_history(self, session_id: str, messages: list[str]) -> bool:
            self.messages[:] = messages
            return True

    class Reverting(Store):
        def revert_to_message(self, session_id: str, message_index: int) -> bool:
            del self.messages[message_index + 1 :]
            return True

    agent, store, reverting = Agent(), Store(), Reverting()
    with pytest.raises(TypeError, match="a list of messages"):
        begin().bind(store)
    cases = (
        (agent, None, agent.chat_history),
        (store, "s1", store.messages),
        (reverting, "s2", reverting.messages),
    )
    for held, session, messages in cases:
        service = begin()
        service.bind(held, session)
        saved = run(service.save("One", allow_empty=True))
        messages.append("two")
        (workspace / "a").write_text(str(session))
        later = run(service.save("Two"))
        run(service.restore(saved))
        assert messages == ["one"]
        run(service.restore(later))
        assert messages == ["one", "two"]


@pytest.mark.parametrize("name", ["-rf", "a b", "a|b", "ä\n", "*", "[x]"])
def test_odd_names_are_restored(run: Run, begin: Begin, workspace: Path, name: str) -> None:
    (workspace / name).write_text("odd")
    save_change_and_restore(run, begin(), workspace, (workspace / name).unlink)
