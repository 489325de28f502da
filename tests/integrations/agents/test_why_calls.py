"""Tool calls of real agents' shapes, through the real hooks: the named call is the true one, or it is uncertain.

Each writer leaves its own name in what it writes: a line, a package, a variable, a row. In the end each of these is
asked for, and its answer is compared with the name in it. Most events are handled in this process, from the same input
and spool as a hook's: starting the hook's programs takes ten times as long. Every HOOKS-th event calls the real hook.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from git_envhist.api import EnvHistory
from git_envhist.handlers.agent_hook import _work
from git_envhist.history.attribution import Certainty
from git_envhist.history.why import Origin, Subject, SubjectKind
from git_envhist.integrations.agents.events import SPOOLED, read_event
from tests.integrations.agents.test_called import Working, hooks_of, told, working

__all__ = ["working"]

AGENT = "claude-code"
HOOK_START = 0.012
"""Seconds between the last write of a tool and the report of its end."""
HOOKS = int(os.environ.get("ENVHIST_WHY_HOOKS", "20"))
"""Of so many events one calls the real hook."""
CALLS = int(os.environ.get("ENVHIST_WHY_CALLS", "200"))
PERSON = "person"
READING = (
    "ls -la",
    "git status && git diff",
    "grep -rn first . | head -20",
    "make check",
    "python -m pytest -q",
)
"""Command lines of calls that change nothing; two of them might."""
FILES = ("app.py", "lib/util.py", "notes.txt", "build/out.log")
SITE = ".venv/lib/python3.11/site-packages"


class Workshop:
    """A working tree in which agents call tools and a person edits files."""

    def __init__(self, here: Working, seed: int) -> None:
        self.here = here
        self.root = here.repo.path
        self.random = random.Random(seed)
        self.number = 0
        self.events = 0
        self.running: list[tuple[dict[str, Any], dict[str, Any], Callable[[], None]]] = []
        for path in FILES:
            here.repo.write(path, "first\n")
        here.repo.write(".gitignore", "build/\n.venv/\n")
        here.repo.write(".venv/pyvenv.cfg", "version = 3.11\n")
        here.repo.write(f"{SITE}/keep.py", "")
        here.repo.write(".env", "FIRST=1\n")
        with sqlite3.connect(self.root / "app.db") as base:
            base.execute("create table users (id integer primary key, name text)")
            base.execute("insert into users values (1, 'first')")

    def call(self, kind: str, **more: Any) -> None:
        """Handle an event as a hook does."""
        self.events += 1
        if self.events % HOOKS == 0:
            self.here.call(AGENT, kind, **more)
            if kind not in ("before", "done"):
                self.here.idle()
            return
        data = json.dumps(told(AGENT, kind, self.here.repo, self.here.transcript, **more)).encode()
        spool, environ = (
            hooks_of(self.here.repo) / "spool",
            {**self.here.repo.env, "GIT_ENVHIST_WORKERS": "here"},
        )
        if kind == "before":
            _work(str(spool), read_event(AGENT, kind, data, environ), lambda _: True, environ)
            return
        spool.mkdir(mode=0o700, exist_ok=True)
        file = spool / f"{AGENT}.{kind}.{self.events}"
        file.write_bytes(b"\n" + data)
        file.rename(f"{file}{SPOOLED}")
        if kind != "done":
            _work(str(spool), None, lambda _: True, environ)

    # What a writer can write; each returns nothing and leaves the writer's name.

    def line(self, who: str) -> None:
        place = self.root / self.random.choice(FILES)
        lines = place.read_text().splitlines() if place.exists() else []
        if len(lines) > 3 and self.random.random() < 0.3:
            lines[self.random.randrange(len(lines))] = who
        else:
            lines.insert(self.random.randrange(len(lines) + 1), who)
        place.write_text("\n".join(lines) + "\n")

    def package(self, who: str) -> None:
        name = f"pkg{who.replace('-', '')}"
        place = self.root / SITE / f"{name}-1.0.dist-info"
        place.mkdir(parents=True)
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")

    def variable(self, who: str) -> None:
        place = self.root / ".env"
        place.write_text(place.read_text() + f"V_{who.replace('-', '_')}={self.random.random()}\n")

    def row(self, who: str) -> None:
        with sqlite3.connect(self.root / "app.db") as base:
            base.execute("insert into users (name) values (?)", (who,))

    def nothing(self, who: str) -> None:
        """A command that changes nothing."""

    def shell(self, who: str) -> tuple[str, Callable[[], None]]:
        """Return a command line, and what makes its change."""
        kinds = (self.line, self.line, self.package, self.variable, self.row, self.nothing, self.nothing)
        write = self.random.choice(kinds)
        command = self.random.choice(READING) if write == self.nothing else f"make {who}"
        return command, lambda: write(who)

    # Calls.

    def person(self) -> None:
        """Let a person edit a file, without any hook."""
        self.number += 1
        write = self.random.choice((self.line, self.line, self.package, self.variable, self.row))
        write(f"{PERSON}-{self.number}")

    def before(self, session: str, subagent: str | None) -> None:
        """Call the hook before a tool."""
        self.number += 1
        who = f"call-{self.number}"
        more: dict[str, Any] = {"session_id": session, "tool_use_id": who}
        if subagent:
            more |= {"agent_id": subagent, "agent_type": "worker"}
        if self.random.random() < 0.4:
            tool, write = self.edit(who)
        else:
            command, write = self.shell(who)
            tool = {"tool_name": "Bash", "tool_input": {"command": command}}
        self.call("before", **more, **tool)
        self.running.append((more, tool, write))

    def edit(self, who: str) -> tuple[dict[str, Any], Callable[[], None]]:
        """Return an edit of one file, and what makes it."""
        place = self.root / self.random.choice(FILES)
        if self.random.random() < 0.3:
            text = "".join(f"{who}\n" for _ in range(2))
            named = {"file_path": str(place), "content": text}
            return {"tool_name": "Write", "tool_input": named}, lambda: self._write(place, text)
        lines = place.read_text().splitlines()
        old = self.random.choice(lines) if lines else ""
        named = {"file_path": str(place), "old_string": old, "new_string": f"{old}\n{who}"}
        return {"tool_name": "Edit", "tool_input": named}, lambda: self._replace(place, old, who)

    def _write(self, place: Path, text: str) -> None:
        place.write_text(text)

    def _replace(self, place: Path, old: str, who: str) -> None:
        text = place.read_text()
        # As the real tool, it refuses a text that is not there once.
        if old and text.count(old) == 1:
            place.write_text(text.replace(old, f"{old}\n{who}"))

    def end(self) -> None:
        """Let a running call do its work and end."""
        more, tool, write = self.running.pop(self.random.randrange(len(self.running)))
        fate = self.random.random()
        if fate < 0.05:
            return  # a person refused the call: it did nothing, and no hook is called
        write()
        # The program of a real hook takes longer to start; the kernel's clock for files has steps of 4 to 10 ms.
        time.sleep(HOOK_START)
        if fate > 0.12:
            self.call("done", **more, **tool)

    def turn(self) -> None:
        """End the turn of the first session."""
        while self.running:
            self.end()
        for subagent in ("sub-a", "sub-b"):
            self.call("after", session_id="c-1", agent_id=subagent)
        for session in ("c-2", "c-1"):
            self.call("after", session_id=session)
        if self.random.random() < 0.3:
            self.person()
        self.call("prompt", session_id="c-1", prompt_id=f"p-{self.number}", prompt="go on")

    def work(self, calls: int) -> None:
        """Make a number of calls, some parallel, some of subagents and of a second session."""
        made = 0
        while made < calls:
            chance = self.random.random()
            if self.running and (chance < 0.75 or len(self.running) > 2):
                self.end()
            elif chance < 0.12 and not self.running:
                self.person()
            elif chance < 0.17:
                self.turn()
            else:
                session = "c-2" if self.random.random() < 0.15 else "c-1"
                subagent = self.random.choice((None, None, "sub-a", "sub-b"))
                self.before(session, subagent)
                made += 1
        self.turn()


def writer_of(origin: Origin) -> str | None:
    """Return the call that an answer names, None if it is uncertain."""
    if origin.attribution.certainty is Certainty.CALL:
        assert origin.attribution.call is not None
        return origin.attribution.call.id
    return None


def answers(history: EnvHistory, root: Path) -> list[tuple[str, str, str | None]]:
    """Return (kind, true writer, named writer) of everything in the end state."""
    with history.origins() as origins:

        def named(kind: SubjectKind, name: str, line: int | None = None) -> str | None:
            return writer_of(next(origins.of(Subject(kind, name, line))))

        return list(found_writers(root, named))


def found_writers(root: Path, named: Callable[..., str | None]) -> Iterator[tuple[str, str, str | None]]:
    for path in FILES:
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            yield "line", line, named(SubjectKind.LINE, path, number)
    for place in (root / SITE).glob("*.dist-info"):
        name = place.name.partition("-")[0]
        kind = PERSON if PERSON in name else "call"
        yield "package", f"{kind}-{name.removeprefix(f'pkg{kind}')}", named(SubjectKind.PACKAGE, name)
    for row in (root / ".env").read_text().splitlines():
        name = row.partition("=")[0]
        writer = name.removeprefix("V_").replace("_", "-")
        yield "variable", writer, named(SubjectKind.VARIABLE, name)
    with sqlite3.connect(root / "app.db") as base:
        rows = base.execute("select id, name from users").fetchall()
    for number, name in rows:
        yield "row", name, named(SubjectKind.ROW, f"users:{number}")


@pytest.mark.full
@pytest.mark.parametrize("seed", range(int(os.environ.get("ENVHIST_WHY_SEEDS", "1"))))
def test_no_wrong_call_is_named_after_many_calls(working: Callable[..., Working], seed: int) -> None:
    here = working("claude-code")
    workshop = Workshop(here, seed)
    here.repo.run("envlog", "capture", "-m", "begin", check=True)
    workshop.call("prompt", session_id="c-1", prompt="begin")
    workshop.work(CALLS)
    here.idle()
    here.repo.run("envlog", "capture", "--if-changed", check=True)
    history = EnvHistory.open(str(here.repo.path), workers="here", one_command=True)
    found = answers(history, here.repo.path)
    wrong = [one for one in found if one[2] is not None and one[2] != one[1]]
    kinds = Counter(kind for kind, _, _ in found)
    certain = Counter(kind for kind, _, named in found if named is not None)
    by_call = Counter(kind for kind, writer, _ in found if writer.startswith("call"))
    print({kind: (kinds[kind], by_call[kind], certain[kind]) for kind in kinds})
    assert wrong == []
    assert certain["line"]
