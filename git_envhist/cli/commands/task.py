"""`git envlog task` and `resume`: tasks on the timeline, and the next one."""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.cli.command import Session, command
from git_envhist.cli.json_values import SCHEMA, Json, iso_time
from git_envhist.cli.parser import argument, force, option
from git_envhist.cli.views.log import SHORTEST_ID, format_context, id_length
from git_envhist.errors import UsageError
from git_envhist.history.timeline import subject
from git_envhist.model import ResumePoint, Task, TaskStatus
from git_envhist.printable_text import escape, escape_invalid
from git_envhist.tracking.tasks import definition_of_files

USAGE = "git envlog task add <text> | start|done|fail|skip <number> | list"
NO_TASKS = "no tasks; add one: git envlog task add <text>"
STATUSES = {
    "start": TaskStatus.IN_PROGRESS,
    "done": TaskStatus.COMPLETED,
    "fail": TaskStatus.FAILED,
    "skip": TaskStatus.SKIPPED,
}
DEFINITION = option(
    "--definition",
    "files",
    metavar="<file>",
    multiple=True,
    help="file with the agent's prompts or tools; repeatable",
)
WIDEST_STATUS = max(len(status.value) for status in TaskStatus)


@command("task", USAGE, writes=True)
@argument("action", default="list", metavar="add|start|done|fail|skip|list")
@argument("which", metavar="[<text> | <number>]")
@DEFINITION
def task(session: Session, action: str, which: str | None, files: tuple[str, ...]) -> None:
    """Add and update tasks. A snapshot is taken when a task starts or ends."""
    session.no_paths()
    tasks = session.history.tasks
    if action == "list" and which is None:
        _print_result(session, tasks.all())
    elif action == "add" and which is not None:
        _print_one(session, tasks.add(which, definition=definition_of_files(files)))
    elif action in STATUSES and which is not None:
        definition = definition_of_files(files)
        _print_one(session, tasks.set(_number(which), STATUSES[action], definition=definition))
    else:
        raise _wrong_action(action, which)


@command("resume", "git envlog resume [--definition <file>]... [--force]")
@DEFINITION
@force("resume even if the agent definition changed")
def resume(session: Session, files: tuple[str, ...], force: bool) -> None:
    """Show the next task (neither completed nor skipped) and the snapshot that it starts from."""
    session.no_paths()
    found = session.history.tasks.resume(definition=definition_of_files(files), force=force)
    if session.json:
        session.print_json({"schema": SCHEMA, **_resumed_json(found)})
        return
    if found is None:
        session.line("all tasks are done" if session.history.tasks.all() else NO_TASKS)
        return
    context = format_context(session.history)
    session.line(task_line(found.task))
    session.line(
        f"the task starts from {found.start.id[:7]} ({context.time(found.start)}): {context.words(found.start)}"
    )
    by, here = _agent(found.task.agent, found.task.agent_version), session.history.agent
    if by and here is not None and by != _agent(here.name, here.version):
        session.line(f"recorded by {escape(by)}; you are {escape(_agent(here.name, here.version))}")
    session.line(f"to restore that state: git envrestore {found.start.id[:7]}")
    if found.attached is not None:
        what = "attachments" if found.conversation is None else "conversation"
        there = found.attached.id[:7]
        session.line(f"its {what} (from {there}): git envrestore {there} --attachments <directory>")


def _resumed_json(found: ResumePoint | None) -> Json:
    if found is None:
        return {"task": None, "start": None, "attached": None}
    attached = None if found.attached is None else found.attached.id
    return {"task": task_json(found.task), "start": found.start.id, "attached": attached}


def _wrong_action(action: str, which: str | None) -> UsageError:
    """Return the error for an unknown action, or for one that lacks its number or text."""
    if action == "add":
        return UsageError("no text given", hint="git envlog task add <text>")
    if action in STATUSES:
        return UsageError(
            "no task number given",
            hint=f"git envlog task {action} <number>; to list tasks: git envlog task list",
        )
    wrong = which if action == "list" else action
    return UsageError(f"'task' has no such action: '{wrong}'", hint=USAGE)


def _agent(name: str | None, version: str | None) -> str:
    return " ".join(word for word in (name, version) if word)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"no such task: '{text}'", hint="git envlog task list")
    return int(text)


def _print_result(session: Session, tasks: Sequence[Task]) -> None:
    if session.json:
        session.print_json({"schema": SCHEMA, "tasks": [task_json(one) for one in tasks]})
        return
    ids = id_length([one.snapshot_id for one in tasks])
    for one in tasks:
        session.line(task_line(one, ids))
    if not tasks:
        session.line(NO_TASKS)


def _print_one(session: Session, one: Task) -> None:
    session.done("the task is stored")
    if session.json:
        session.print_json({"schema": SCHEMA, "task": task_json(one)})
    else:
        session.line(task_line(one))


def task_line(one: Task, digits: int = SHORTEST_ID) -> str:
    text = f"{one.number:>3}  {one.status.value:<{WIDEST_STATUS}}  {one.snapshot_id[:digits]}"
    return f"{text}  {escape(subject(one.text))}"


def task_json(one: Task) -> Json:
    return {
        "number": one.number,
        "text": escape_invalid(one.text),
        "status": one.status.value,
        "at": iso_time(one.at),
        "snapshot": one.snapshot_id,
        "begun_at": one.started_id,
        "agent": one.agent and escape_invalid(one.agent),
        "agent_version": one.agent_version and escape_invalid(one.agent_version),
        "definition": one.definition and escape_invalid(one.definition),
    }
