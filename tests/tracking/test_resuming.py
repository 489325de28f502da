"""Resume a task that another process or another version of an agent began."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.errors import Damaged
from git_envhist.history.tasks_and_effects import TASK_FORMAT, NewerRecord
from git_envhist.model import AgentName, TaskStatus
from git_envhist.tracking.tasks import DefinitionDiffers, definition_of
from tests.cli.test_json import validate
from tests.support.repository import Repo

AGENT = """
import os, signal, sys
from pathlib import Path
from git_envhist import EnvHistory
from git_envhist.tracking.tasks import definition_of
from git_envhist.model import AgentName, TaskStatus

version, prompt, stop_in = sys.argv[1:]
agent = AgentName("builder", version, definition=definition_of(prompt))
history = EnvHistory.open(".", agent=agent, workers="here")
tasks = history.tasks
if not tasks.all():
    for text in ("schema", "server", "page"):
        tasks.add(text)
while (resumed := tasks.resume()) is not None:
    task = resumed.task
    if task.status is TaskStatus.IN_PROGRESS:
        history.restore(resumed.start)
    tasks.set(task.number, TaskStatus.IN_PROGRESS)
    with open("work", "a") as work:
        work.write(f"{task.text} begun by {version}\\n")
    if task.text == stop_in:
        os.kill(os.getpid(), signal.SIGKILL)
    with open("work", "a") as work:
        work.write(f"{task.text} done by {version}\\n")
    tasks.set(task.number, TaskStatus.COMPLETED)
"""


def run_agent(repo: Repo, version: str, prompt: str, stop_in: str = "") -> int:
    words = [sys.executable, "-c", AGENT, version, prompt, stop_in]
    return subprocess.run(words, cwd=repo.path, env=repo.env, capture_output=True).returncode


def test_task_begun_by_one_version_is_finished_by_the_next(repo: Repo) -> None:
    assert run_agent(repo, "1.0", "be careful", stop_in="server") == -signal.SIGKILL
    history = EnvHistory.open(repo.path, workers="here")
    told = [(task.text, task.status, task.agent_version) for task in history.tasks.all()]
    assert told == [
        ("schema", TaskStatus.COMPLETED, "1.0"),
        ("server", TaskStatus.IN_PROGRESS, "1.0"),
        ("page", TaskStatus.PENDING, "1.0"),
    ]
    shown = repo.run(
        "envlog",
        "resume",
        check=True,
        env={"GIT_ENVHIST_AGENT": "builder", "GIT_ENVHIST_AGENT_VERSION": "2.0"},
    ).out
    assert "server" in shown
    assert "recorded by builder 1.0; you are builder 2.0" in shown
    assert run_agent(repo, "2.0", "be careful") == 0
    assert repo.read("work").decode().splitlines() == [
        "schema begun by 1.0",
        "schema done by 1.0",
        "server begun by 2.0",  # the restore removed the unfinished work of 1.0
        "server done by 2.0",
        "page begun by 2.0",
        "page done by 2.0",
    ]
    versions = {one.actor.agent_version for one in history.log()}
    assert versions == {"1.0", "2.0"}
    assert [task.agent_version for task in history.tasks.all()] == ["1.0", "2.0", "2.0"]


def test_resume_under_another_definition_is_refused_unless_forced(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("be careful")
    (tmp_path / "other").write_text("be bold")
    careful, bold = f"--definition={tmp_path / 'prompt'}", f"--definition={tmp_path / 'other'}"
    repo.run("envlog", "task", "add", "schema", careful, check=True)
    repo.run("envlog", "task", "add", "server", check=True)
    repo.run("envlog", "task", "start", "1", careful, check=True)
    assert repo.run("envlog", "resume", careful, check=True).out
    assert repo.run("envlog", "resume", check=True).out
    refused = repo.run("envlog", "resume", bold)
    assert (refused.status, "--force" in refused.err) == (3, True)
    failure = json.loads(repo.run("envlog", "resume", bold, "--json").out)
    assert failure["error"]["code"] == "definition-differs"
    forced = json.loads(repo.run("envlog", "resume", bold, "--force", "--json", check=True).out)
    validate("resumed", forced)
    assert forced["task"]["definition"] == definition_of(b"be careful")
    # The definition of a task that never began is the newest recorded one.
    repo.run("envlog", "task", "done", "1", careful, check=True)
    assert repo.run("envlog", "resume", bold).status == 3
    repo.run("envlog", "task", "start", "2", bold, check=True)
    assert repo.run("envlog", "resume", bold, check=True).out


def test_python_agent_must_have_the_recorded_definition(repo: Repo) -> None:
    first = EnvHistory.open(
        repo.path, agent=AgentName("builder", "1", definition=definition_of("a", [1])), workers="here"
    )
    first.tasks.add("schema")
    assert first.tasks.resume() is not None
    second = EnvHistory.open(
        repo.path, agent=AgentName("builder", "2", definition=definition_of("b", [1])), workers="here"
    )
    with pytest.raises(DefinitionDiffers):
        second.tasks.resume()
    assert second.tasks.resume(force=True) is not None
    anybody = EnvHistory.open(repo.path, agent=AgentName("builder", "3"), workers="here")
    assert anybody.tasks.resume() is not None


def test_definition_does_not_depend_on_the_order_of_keys() -> None:
    assert definition_of({"a": 1, "b": {"c": 2, "d": 3}}) == definition_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert definition_of("a", "b") != definition_of("ab")
    assert definition_of(b"a") != definition_of("a")


def test_task_record_of_a_later_version_is_refused_and_of_an_earlier_one_read(repo: Repo) -> None:
    history = EnvHistory.open(repo.path, workers="here")
    task = history.tasks.add("schema")
    newest = history.resolve("@")
    (record,) = [one for one in newest.records if one.kind == "task"]
    assert record.fields["format"] == TASK_FORMAT

    def told(**fields: object) -> None:
        whole = {**record.fields, "at": record.at.isoformat(), "kind": "task", **fields}
        line = json.dumps({key: value for key, value in whole.items() if value is not None})
        repo.git("notes", f"--ref=envhist/{history.timeline}", "append", "-m", line, newest.commit)

    # A record without a format, as before formats had numbers.
    told(format=None, event=f"{task.mark}1", status="in-progress")
    assert [one.status for one in history.tasks.all()] == [TaskStatus.IN_PROGRESS]
    told(format=TASK_FORMAT + 1, event=f"{task.mark}2", status="half-way")
    with pytest.raises(NewerRecord, match=f"have format '{TASK_FORMAT + 1}'"):
        history.tasks.all()
    for words in (("task",), ("resume",)):
        refused = repo.run("envlog", *words)
        assert (refused.status, "upgrade git-envhist" in refused.err) == (128, True)
    # All other commands still work.
    assert repo.run("envlog", "show", check=True).out
    assert repo.run("envlog", "--json", check=True).out


def test_snapshot_of_a_later_format_is_refused_and_others_are_listed(repo: Repo) -> None:
    history = EnvHistory.open(repo.path, workers="here")
    first = history.capture("ours").snapshot
    assert first is not None
    assert json.loads(repo.run("envlog", "show", "--json", check=True).out)["format"] == 1
    raw = repo.git("cat-file", "commit", first.commit).replace("Env-Format: 1", "Env-Format: 99")
    raw = raw.replace("\nauthor", f"\nparent {first.commit}\nauthor", 1)
    newer = repo.git("hash-object", "-t", "commit", "-w", "--stdin", input=raw + "\n")
    repo.git("update-ref", f"refs/envhist/heads/{history.timeline}", newer)
    listed = repo.run("envlog", check=True)
    assert "ours" in listed.out
    assert "in format '99', this program reads up to '1'" in listed.err
    refused = repo.run("envlog", "show", newer[:12])
    assert (refused.status, "in format '99'" in refused.err) == (128, True)
    with pytest.raises(Damaged, match="format '99'"):
        raise NewerRecord(99)


def test_resume_returns_the_conversation_of_an_earlier_snapshot(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_ENVHIST_WORKERS", "here")
    history = EnvHistory.open(repo.path)
    said = [{"role": "user", "content": "build it"}]
    talked = history.capture("asked", conversation=said)
    history.tasks.add("server")
    repo.write("server.py", b"half")
    history.tasks.set(1, TaskStatus.IN_PROGRESS)
    repo.write("server.py", b"more")
    later = history.capture("later", conversation=[*said, "not known then"])
    resumed = history.tasks.resume()
    assert resumed is not None
    assert resumed.attached is not None
    assert (resumed.attached.id, resumed.conversation) == (talked.id, said)
    assert resumed.start.id not in (talked.id, later.id)
    done = repo.run("envlog", "resume", check=True).out
    words = f"git envrestore {talked.id[:7]} --attachments"
    assert words in done
    repo.run("envrestore", talked.id[:7], "--attachments", "../there", check=True)
    assert "build it" in "".join(path.read_text() for path in (repo.path / "../there").iterdir())
    answer = json.loads(repo.run("envlog", "resume", "--json", check=True).out)
    assert answer["attached"] == talked.id
    validate("resumed", answer)
    assert [task.text for task in history.tasks] == ["server"]


def test_resume_works_without_a_conversation(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_ENVHIST_WORKERS", "here")
    history = EnvHistory.open(repo.path)
    history.tasks.add("server")
    resumed = history.tasks.resume()
    assert resumed is not None
    assert (resumed.attached, resumed.conversation) == (None, None)
    history.attach(resumed.start, attached=[("notes.txt", b"by hand")])
    resumed = history.tasks.resume()
    assert resumed is not None
    assert resumed.attached is not None
    assert (resumed.attached.id, resumed.conversation) == (resumed.start.id, None)
