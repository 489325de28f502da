"""Run the commands that documents show, and compare their output with the shown output."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "-- a command of the document ended with "


@dataclass(frozen=True, slots=True)
class Step:
    """A command in a shown session, and the output that the document shows for it."""

    command: str
    shown: tuple[str, ...]


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced blocks of a document in one language, in order."""
    return [text for kind, text in FENCE.findall(path.read_text(encoding="utf-8")) if kind == language]


def steps(session: str) -> Iterator[Step]:
    """Yield the steps of a `console` block: `$ ` begins a command, `> ` continues it, the other lines are its
    output."""
    command: list[str] = []
    shown: list[str] = []
    for line in session.splitlines():
        if line.startswith("$ "):
            if command:
                yield Step("\n".join(command), tuple(shown))
            command, shown = [line[2:]], []
        elif line.startswith("> ") and command and not shown:
            command.append(line[2:])
        else:
            shown.append(line)
    if command:
        yield Step("\n".join(command), tuple(shown))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command in a document."""

    command: str
    status: int
    out: str


def run_commands(commands: list[str], directory: Path, env: Mapping[str, str]) -> list[Outcome]:
    """Run commands one after another in one shell, so that variables and `cd` last; standard output and errors are
    merged."""
    script = "".join(f"{command}\nprintf '\\n{MARK}%s\\n' \"$?\"\n" for command in commands)
    done = subprocess.run(
        ["bash", "-c", script], cwd=directory, env=dict(env), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    parts = re.split(rf"\n{MARK}(\d+)\n", done.stdout.decode("utf-8", "replace"))
    found = [Outcome(c, int(s), o) for c, o, s in zip(commands, parts[::2], parts[1::2], strict=False)]
    assert len(found) == len(commands), f"the shell ended early: {parts[-1]}"
    return found


def differs(shown: tuple[str, ...], printed: str) -> str | None:
    """Return why the shown output differs from the printed one, or None; ids, times and sizes may differ, `…` matches
    anything."""
    lines = printed.rstrip("\n").split("\n") if printed.strip("\n") else []
    if len(lines) != len(shown):
        return f"{len(shown)} lines shown, {len(lines)} printed:\n{printed}"
    for wanted, line in zip(shown, lines, strict=True):
        # A document shows the minus sign of a terminal; a pipe is given an ASCII one.
        if not re.fullmatch(_pattern(wanted.replace("−", "-")), " ".join(line.replace("−", "-").split())):
            return f"shown: {wanted}\ncame:  {line}"
    return None


# The number of files new to the store depends on their modification times, and on the order of the packs.
VARIABLE = re.compile(
    r"(?P<new>\b\d+ new\b(?: \([^)]*\))?)"
    r"|(?P<id>\b[0-9a-f]{7,40}\b)|(?P<date>\d{4}-\d\d-\d\d)|(?P<time>\b\d\d:\d\d(?::\d\d)?\b)"
    r"|(?P<name>[a-z0-9.-]+/[\w.-]+-[0-9a-f]{6}\b)|(?P<seconds>\b\d+\.\d+ s\b)"
    r"|(?P<ms>\b[\d,]+ ms\b)"
    r"|(?P<size>\b\d+(?:\.\d+)? [KM]?i?B\b)|(?P<any>…)"
)
ANY_OF = {
    "new": r"\d+ new( \([^)]*\))?",
    "id": r"[0-9a-f]{7,40}",
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d(:\d\d)?",
    "name": r"[\w.-]+/[\w.-]+-[0-9a-f]{6}",
    "seconds": r"\d+(\.\d+)? s",
    "ms": r"[\d,]+ ms",
    "size": r"\d+(\.\d+)? [KM]?i?B",
    "any": r".*",
}


def _pattern(line: str) -> str:
    text = " ".join(line.split())
    pattern, at = "", 0
    for found in VARIABLE.finditer(text):
        pattern += re.escape(text[at : found.start()]) + ANY_OF[found.lastgroup or "any"]
        at = found.end()
    return pattern + re.escape(text[at:])


def plain_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a shell that follows a document: fixed width, no terminal."""
    return {**env, "COLUMNS": "100", "PS1": "", "BASH_ENV": os.devnull}
