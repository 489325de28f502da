"""Work between two snapshots, successful, failed or rolled back; tools of agents; events."""

# ruff: noqa: PT012 - the block before the failing statement is under test

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from git_envhist import EnvHistory
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.model import AgentName, CaptureProgress, Snapshot, Trigger
from tests.support.repository import Repo

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(repo.path, workers="here")


def intents(history: EnvHistory) -> list[str]:
    return [one.intent for one in reversed(history.log())]


def test_failed_work_is_captured_and_rolled_back(history: EnvHistory, repo: Repo) -> None:
    repo.write(".env.local", b"A=1")
    with pytest.raises(ZeroDivisionError), history.around("upgrade", rollback=True) as moment:
        repo.write(".env.local", b"A=2")
        repo.write("new", b"new")
        raise ZeroDivisionError
    assert repo.read(".env.local") == b"A=1"
    assert not (repo.path / "new").exists()
    assert moment.after is not None
    assert moment.after.snapshot is not None
    assert dict(moment.after.snapshot.meta) == {"failed": "ZeroDivisionError"}
    assert history.read_file(moment.after, ".env.local") == b"A=2"
    history.undo()
    assert repo.read(".env.local") == b"A=2"


def test_failed_work_without_rollback_is_captured_and_stays(history: EnvHistory, repo: Repo) -> None:
    with pytest.raises(KeyboardInterrupt), history.around("upgrade") as moment:
        repo.write("new", b"new")
        raise KeyboardInterrupt
    assert (repo.read("new"), moment.restored) == (b"new", None)
    assert intents(history) == ["before: upgrade", "upgrade\n\nfailed: KeyboardInterrupt"]


def test_work_is_rolled_back_when_its_check_fails(history: EnvHistory, repo: Repo) -> None:
    with history.around("break it", rollback=True, verify="grep -q hello app.py") as moment:
        repo.write("app.py", b"broken")
    assert moment.passed is False
    assert moment.restored is not None
    assert repo.read("app.py") == b"print('hello')\n"


def test_error_of_the_work_has_a_note_when_the_rollback_fails(
    history: EnvHistory, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise EnvhistError("no way back")

    monkeypatch.setattr(history, "restore", refuse)
    with pytest.raises(ValueError) as raised, history.around("upgrade", rollback=True) as moment:
        repo.write("new", b"new")
        raise ValueError
    assert raised.value.__notes__ == [
        f"git-envhist: no way back; to restore the state before: git envrestore {moment.before.id[:7]}"
    ]


def test_work_has_no_snapshot_before_it_begins(history: EnvHistory) -> None:
    with pytest.raises(EnvhistError, match="has not begun"):
        _ = history.around("later").before


def test_tool_is_captured_before_and_after_each_call(history: EnvHistory, repo: Repo) -> None:
    @history.tool
    def write(path: str, text: str, *, token: str = "") -> None:
        """Write a file."""
        repo.write(path, text)

    @history.tool(called="shell", rollback=True)
    def run(command: str) -> None:
        repo.write("made", command)
        raise OSError(command)

    @history.tool
    def look() -> int:
        return 5

    assert (write.__name__, write.__doc__, look()) == ("write", "Write a file.", 5)
    write("a", "1", token=TOKEN)
    with pytest.raises(OSError, match="rm everything"):
        run("rm everything")
    assert not (repo.path / "made").exists()
    assert TOKEN not in "".join(intents(history))
    told = [one for one in history.log() if one.trigger is Trigger.AGENT]
    assert [(one.actor.tool, one.intent.split("\n")[0].split("(")[0]) for one in reversed(told)] == [
        ("look", "before: look"),
        ("write", "write"),
        ("shell", "shell"),
    ]


def test_intent_of_a_tool_call_is_cut(history: EnvHistory, repo: Repo) -> None:
    @history.tool
    def write(path: str, text: str) -> None:
        repo.write(path, text)

    write("a", "x" * 100_000)
    assert len(history.resolve("@").intent) == 200


def test_handler_that_fails_receives_every_event_and_breaks_nothing(repo: Repo, tmp_path: Path) -> None:
    # A capture reports progress while it waits for its workers, so this test has some.
    history = EnvHistory.open(repo.path)
    heard: list[tuple[str, object]] = []
    for event in ("captured", "verified", "restored", "forked", "noted", "progress"):
        history.on(event, lambda *about, event=event: heard.append((event, about[0])))

    def fail(_: object) -> None:
        raise RuntimeError("mine")

    forget = history.on("captured", fail)
    for number in range(50):
        repo.write(f"many/{number}", bytes(number))
    moment = history.capture("first")
    assert history.warnings == ["a handler of 'captured' failed: RuntimeError: mine"]
    forget()
    history.note("heard", moment)
    history.verify("now", "true")
    repo.write("app.py", b"more")
    history.restore(moment)
    history.restore(moment, dry_run=True)
    history.undo()
    history.fork(moment, str(tmp_path / "fork"))
    said = [event for event, _ in heard if event != "progress"]
    assert said == ["captured", "noted", "verified", "restored", "restored", "forked"]
    assert {type(about) for event, about in heard if event == "progress"} == {CaptureProgress}
    with pytest.raises(UsageError, match="no such event: 'saved'"):
        history.on("saved", fail)


def test_snapshot_of_an_agent_has_its_name(repo: Repo) -> None:
    agent = AgentName("refactorer", "2.1", session="s-1")
    history = EnvHistory.open(repo.path, agent=agent, workers="here")
    moment = history.capture("mine")
    restored = history.restore(moment)
    for one in (moment.snapshot, restored.snapshot or moment.snapshot):
        assert isinstance(one, Snapshot)
        actor = one.actor
        assert (actor.agent, actor.agent_version, actor.session) == ("refactorer", "2.1", "s-1")


def test_command_runs_between_two_snapshots(history: EnvHistory, repo: Repo) -> None:
    ran = history.run(
        ["sh", "-c", "echo made >made; echo said; echo also >&2; exit 3"], verify="test -f made"
    )
    assert (ran.status, ran.output) == (3, b"said\nalso\n")
    assert ran.after is not None
    assert ran.after.verdict is not None
    assert dict(history.get(ran.after).attachments)["1-output"] == b"said\nalso\n"
    with pytest.raises(EnvhistError, match="cannot run 'nothing of this name'"):
        history.run(["nothing of this name"])


def test_watch_yields_each_capture_until_its_caller_stops(history: EnvHistory, repo: Repo) -> None:
    watch = history.watch(settle=0.05)
    assert next(watch).snapshot is not None
    repo.write("file", b"changed")
    captured = next(watch)
    assert captured.snapshot is not None
    assert captured.snapshot.trigger is Trigger.WATCH
    assert history.read_file(captured, "file") == b"changed"
    watch.close()  # type: ignore[attr-defined]
    again = history.watch(settle=0.05)  # the lock of the watch is free again
    repo.write("file", b"changed again")
    assert next(again).snapshot is not None
    again.close()  # type: ignore[attr-defined]


def test_hooks_are_installed_and_removed(history: EnvHistory, repo: Repo) -> None:
    would = history.install(dry_run=True)
    assert any(one.edits for one in would)
    assert not history.status().here
    history.install()
    assert history.status().here
    history.uninstall()
    assert not history.status().here


def test_log_selects_by_keywords_and_recent_needs_no_snapshot(history: EnvHistory, repo: Repo) -> None:
    assert b"app.py" in {change.path for change in history.recent("1d").changes}
    history.capture("One", verify="true")
    repo.write("file", b"1")
    history.run(["true"], "two")

    def sought(**words: Any) -> list[str]:
        return [one.intent for one in history.log(**words)]

    assert sought(verdicts=["pass"]) == ["One"]
    assert sought(grep=["one"]) == []
    assert sought(grep=["one"], ignore_case=True) == ["One"]
    assert sought(triggers=["run"], limit=1) == ["two"]
    assert sought(paths=["file"]) == ["before: two"]
    assert sought(since="1h", until="1h") == []
    assert len(sought(all_timelines=True)) == len(sought(since="1h")) == len(history.log())
