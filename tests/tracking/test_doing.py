"""Tasks and effects of a timeline."""

from __future__ import annotations

import json
import os
import pty
from typing import Any

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import Refused
from git_envhist.history.tasks_and_effects import effects_of, tasks_of
from git_envhist.lazy import replace
from git_envhist.model import Effect, TaskStatus
from git_envhist.tracking.effects import approve_all
from tests.support.repository import Repo


def answer(repo: Repo, *words: str) -> Any:
    return json.loads(repo.run("envlog", *words, "--json", check=True).out)


def statuses(repo: Repo) -> list[str]:
    return [one["status"] for one in answer(repo, "task", "list")["tasks"]]


def test_tasks_are_recorded_and_read_by_another_process(repo: Repo) -> None:
    tasks = EnvHistory.open(str(repo.path), workers="here", one_command=True).tasks
    for text in ("write it", "try it", "ship it", "tell of it"):
        tasks.add(text)
    assert statuses(repo) == ["pending"] * 4
    assert answer(repo, "task", "start", "1")["task"]["status"] == "in-progress"
    assert answer(repo, "task", "done", "1")["task"]["status"] == "completed"
    assert answer(repo, "task", "fail", "2")["task"]["status"] == "failed"
    assert answer(repo, "task", "skip", "3")["task"]["status"] == "skipped"
    tasks.set(4, TaskStatus.IN_PROGRESS)
    assert statuses(repo) == ["completed", "failed", "skipped", "in-progress"]
    assert [(task.number, task.text) for task in tasks.all()][3] == (4, "tell of it")


def test_environment_is_captured_when_a_task_begins_or_ends(repo: Repo) -> None:
    answer(repo, "task", "add", "write it")
    repo.write("app.py", b"begun")
    begun = answer(repo, "task", "start", "1")["task"]
    repo.write("app.py", b"done")
    done = answer(repo, "task", "done", "1")["task"]
    assert [repo.git("show", f"{one}:app.py") for one in (begun["snapshot"], done["snapshot"])] == [
        "begun",
        "done",
    ]


def test_resume_returns_the_next_task_and_its_start(repo: Repo) -> None:
    assert answer(repo, "resume") == {"schema": 1, "task": None, "start": None, "attached": None}
    answer(repo, "task", "add", "first")
    answer(repo, "task", "add", "second")
    repo.write("app.py", b"1")
    first = answer(repo, "task", "done", "1")["task"]["snapshot"]
    repo.write("app.py", b"2")
    repo.run("envlog", "capture", check=True)
    # The task never began, so it starts where the one before it ended.
    assert answer(repo, "resume")["start"] == first
    begun = answer(repo, "task", "start", "2")["task"]["snapshot"]
    repo.write("app.py", b"3")
    answer(repo, "task", "fail", "2")
    resumed = answer(repo, "resume")
    assert (resumed["task"]["text"], resumed["task"]["status"], resumed["start"]) == (
        "second",
        "failed",
        begun,
    )
    assert f"git envrestore {begun[:7]}" in repo.run("envlog", "resume", check=True).out
    answer(repo, "task", "done", "2")
    assert repo.run("envlog", "resume", check=True).out == "all tasks are done\n"


def test_resume_without_any_task_names_the_command_that_adds_one(repo: Repo) -> None:
    assert repo.run("envlog", "resume", check=True).out == "no tasks; add one: git envlog task add <text>\n"


@pytest.mark.parametrize("words", [["finish", "1"], ["start"], ["done", "one"], ["list", "1"], ["add", " "]])
def test_unknown_status_of_a_task_is_an_error(repo: Repo, words: list[str]) -> None:
    done = repo.run("envlog", "task", *words)
    assert done.status == 129
    assert done.err.startswith("error: ")
    unknown = repo.run("envlog", "task", "done", "7")
    assert (unknown.status, unknown.err) == (3, "error: no such task: '7'\nhint: git envlog task list\n")


def test_effect_is_noted_before_it_happens_and_with_its_status(repo: Repo) -> None:
    repo.run("envlog", "capture", "--name", "ready", check=True)
    # The command sees that its effect is noted already.
    script = "git envlog show --json > seen; exit 4"
    done = repo.run("envlog", "effect", "deployed", "--", "sh", "-c", script)
    assert (done.status, done.err.partition(": ")[2]) == (4, "deployed (exit 4)\n")
    (seen,) = json.loads(repo.read("seen"))["effects"]
    assert (seen["text"], seen["exit_code"]) == ("deployed", None)
    (now,) = answer(repo, "show", "ready")["effects"]
    assert (now["exit_code"], now["irreversible"], now["command"]) == (4, False, f"sh -c '{script}'")


def test_effect_is_noted_when_the_process_is_killed_during_it(repo: Repo) -> None:
    repo.run("envlog", "capture", "--name", "one", check=True)
    repo.write("app.py", b"two")
    script = "touch ../paid; kill -9 $PPID"
    words = ("effect", "--yes", "paid", "--irreversible", "--", "sh", "-c", script)
    assert repo.run("envlog", *words).status < 0
    assert (repo.path.parent / "paid").exists()
    (effect,) = answer(repo, "show")["effects"]
    assert (effect["text"], effect["exit_code"], effect["irreversible"]) == ("paid", None, True)
    told = "outside this machine, not undone: paid (irreversible, it did not finish)\n"
    assert told in repo.run("envrestore", "one", check=True).out


def test_irreversible_effect_happens_only_after_a_confirmation(repo: Repo) -> None:
    words = ("git-envlog", "effect", "paid", "--irreversible", "--", "touch", "paid")
    refused = repo.execute(*words, check=False)
    assert (refused.status, (repo.path / "paid").exists()) == (3, False)
    assert ask(repo, words, b"\n") == 3
    assert not (repo.path / "paid").exists()
    assert [one["refused"] for one in answer(repo, "show")["effects"]] == [True, True]
    assert ask(repo, words, b"y\n") == 0
    (repo.path / "paid").unlink()
    repo.run("envlog", "effect", "--yes", "paid", "--irreversible", "--", "touch", "paid", check=True)
    assert (repo.path / "paid").exists()


def ask(repo: Repo, words: tuple[str, ...], reply: bytes) -> int:
    child, master = pty.fork()
    if child == 0:
        os.chdir(repo.path)
        os.execvpe(words[0], words, repo.env)
    seen = b""
    try:
        while b"[y/N]" not in seen:
            seen += os.read(master, 1 << 16)
        os.write(master, reply)
        try:
            while os.read(master, 1 << 16):
                pass
        except OSError:
            pass  # the terminal is closed
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(master)


def test_restore_lists_the_effects_that_it_does_not_undo(repo: Repo) -> None:
    repo.run("envlog", "capture", "--name", "one", check=True)
    repo.write("app.py", b"two")
    repo.run("envlog", "effect", "deployed", check=True)
    repo.run("envlog", "effect", "paid", "--irreversible", check=True)
    repo.write("app.py", b"three")
    repo.run("envlog", "capture", "--name", "three", check=True)
    dry = repo.run("envrestore", "-n", "one", check=True).out
    done = repo.run("envrestore", "one", check=True).out
    for told in (dry, done):
        assert told.index("outside this machine, not undone: paid (irreversible)\n") < told.index(
            "outside this machine, not undone: deployed\n"
        )
    assert "not undone" not in repo.run("envrestore", "three", check=True).out
    result = json.loads(repo.run("envrestore", "one", "--json", check=True).out)
    assert [one["text"] for one in result["effects"]] == ["deployed", "paid"]


def test_host_program_may_refuse_an_effect(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    asked: list[Effect] = []
    happened: list[str] = []

    def act() -> int:
        happened.append("sent")
        return 0

    def refuse(effect: Effect) -> bool:
        asked.append(effect)
        return False

    with pytest.raises(Refused, match="not approved"):
        history.effects.perform("send it", act, irreversible=True, approve=refuse)
    assert ([one.text for one in asked], happened) == (["send it"], [])
    assert [(one.text, one.refused, one.exit_code) for one in history.effects] == [("send it", True, None)]
    assert history.effects.since(history.log()[-1]) == ()
    assert history.effects.perform("send it", act, approve=refuse).exit_code == 0
    assert happened == ["sent"]
    assert [one.refused for one in history.effects] == [True, False]


def test_irreversible_effect_is_refused_when_no_decision_was_given(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    happened: list[str] = []
    with pytest.raises(Refused) as refused:
        history.effects.perform("pay", lambda: happened.append("paid"), irreversible=True)
    assert (happened, refused.value.hint) == ([], "give approve=, which decides")
    assert [one.refused for one in history.effects.all()] == [True]
    done = history.effects.perform(
        "pay", lambda: happened.append("paid"), irreversible=True, approve=approve_all
    )
    assert (happened, done.exit_code) == (["paid"], 0)


def test_effect_that_cannot_be_called_is_not_noted(repo: Repo) -> None:
    async def later() -> int:
        return 0

    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    wrong: list[Any] = [None, "make deploy", 0, later, lambda first: first]
    for act in wrong:
        with pytest.raises(TypeError, match="'act'"):
            history.effects.perform("deploy", act)
    with pytest.raises(TypeError, match="'approve'"):
        history.effects.perform("deploy", lambda: 0, irreversible=True, approve=True)  # type: ignore[arg-type]
    assert history.effects.all() == ()
    # An effect that begins and fails may have happened.
    with pytest.raises(ZeroDivisionError):
        history.effects.perform("deploy", lambda: 1 // 0)
    assert [(one.text, one.exit_code, one.refused) for one in history.effects.all()] == [
        ("deploy", None, False)
    ]


def test_refused_effect_is_listed_as_refused_and_named_by_no_restore(repo: Repo) -> None:
    repo.run("envlog", "capture", "--name", "one", check=True)
    repo.write("app.py", b"two")
    refused = repo.run("envlog", "effect", "pay", "--irreversible", "--", "touch", "paid")
    assert refused.status == 3
    assert not (repo.path / "paid").exists()
    history = EnvHistory.open(str(repo.path), one_command=True)
    assert [(one.text, one.refused) for one in history.effects.all()] == [("pay", True)]
    assert "not undone" not in repo.run("envrestore", "one", check=True).out


def test_host_program_attaches_a_conversation_to_a_snapshot(repo: Repo) -> None:
    conversation = json.dumps([{"role": "user", "content": "h\u00e9\u0000"}]).encode()
    told = [("conversation.json", conversation), ("tool output 1", b"\xff\x00\r\n" * 5_000), ("empty", b"")]
    EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("asked for it", attached=told)
    repo.write("app.py", b"two")
    again = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    later = again.capture("later").snapshot
    assert later is not None
    given = again.attachments(":/asked for it")
    assert [data for _, data in given] == [data for _, data in told]
    assert all(name in kept for (name, _), (kept, _) in zip(told, given, strict=True))
    assert again.attachments(later) == again.attachments() == ()


def test_invalid_record_is_skipped(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    history.tasks.add("true")
    history.tasks.set(1, TaskStatus.COMPLETED)
    (snapshot, *_) = history.log()
    garbage: list[dict[str, object]] = [{}, {"mark": 1}, {"mark": "x", "event": [], "text": {}}]
    garbage += [{"mark": "x", "event": "y", "text": "z", "status": "perhaps"}]
    broken = [replace(record, fields=fields) for record in snapshot.records[:1] for fields in garbage]
    spoilt = replace(snapshot, records=(*broken, *snapshot.records))
    assert [(task.text, task.status) for task in tasks_of([spoilt])] == [("true", TaskStatus.COMPLETED)]
    assert effects_of([spoilt]) == ()
