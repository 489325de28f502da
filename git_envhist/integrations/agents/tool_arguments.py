"""Read the arguments of an agent's tool: its command line, the files that it names, and what it writes into them.

Only tools that are known to edit the named files, and nothing else, count as such: `changes_only_paths`; so do command
lines of programs that only read. The bytes that a call will write are known before it runs if it gives them, or
replaces a text in a file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.platform import open_file_only

FILE_TOOLS = frozenset((
    # Claude Code
    *("Write", "Edit", "MultiEdit", "NotebookEdit"),
    # Codex, Cursor
    *("apply_patch", "ApplyPatch", "StrReplace", "EditNotebook", "Delete"),
    # Gemini CLI, Antigravity CLI
    *("write_file", "replace", "write_to_file", "replace_file_content", "multi_replace_file_content"),
    # Copilot, OpenCode
    *("create", "edit", "str_replace", "write", "patch"),
))  # fmt: skip
"""Tools that change the files that they name, and nothing else."""
PATHS = ("file_path", "filePath", "path", "notebook_path", "TargetFile", "target_file")
WHOLE = ("content", "contents", "file_text", "CodeContent")
"""The whole content of the file."""
OLD = ("old_string", "oldString", "old_str")
NEW = ("new_string", "newString", "new_str")
ALL = ("replace_all", "replaceAll")
COMMANDS = ("command", "cmd", "CommandLine", "script")
PATCHES = ("command", "patch", "input", "patchText", "patch_text")
PATCH_LINE = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): ([^\n]+)$", re.MULTILINE)
BACKGROUND = re.compile(
    r"(?<![<>&])&(?![&>\d])|\b(?:nohup|setsid|disown|daemonize|pm2|systemctl|screen|tmux|at|batch|coproc|start-stop-daemon)\b"
    r"|\s(?:-d|--detach(?:ed)?|--daemon(?:ize)?|--background)\b|\bdocker\b|\bpodman\b|\bservice\s"
)
"""A command that may leave a process behind when it ends."""
SHELLS = frozenset(("Bash", "Shell", "shell", "bash", "run_shell_command", "run_command"))
"""Tools that run a command line, and nothing else."""
READERS = frozenset((
    *("basename", "cat", "cd", "cksum", "cmp", "comm", "cut", "df", "diff", "dirname", "du", "echo", "egrep", "false"),
    *("fgrep", "find", "git", "grep", "head", "id", "jq", "ls", "md5sum", "nl", "od", "printf", "ps", "pwd"),
    *("readlink", "realpath", "rg", "sed", "seq", "sha1sum", "sha256sum", "sleep", "stat", "strings", "tail", "test"),
    *("tr", "true", "uname", "wc", "which", "whoami"),
))  # fmt: skip
"""Programs that write no file with any option, or with those that `_only_reads` allows."""
GIT_READERS = frozenset(("status", "log", "diff", "show", "rev-parse", "ls-files", "blame", "describe"))
NOT_READING = {
    "find": re.compile(r"-(?:exec|ok|delete|fprint|fls)"),
    "git": re.compile(r"--(?:out|ext|no-index|textconv)|-[A-Za-z]*[oO]"),
    "printf": re.compile(r"-v"),
    "rg": re.compile(r"--(?:pre|hostname)|-[A-Za-z]*z"),
}
"""Options with which a program may write, run another one, or set a variable such as `PATH`."""
PRINTED_LINES = re.compile(r"[0-9,$]+p(?:;[0-9,$]+p)*")
SHELL_PART = re.compile(
    r"(?P<end>\s*(?:\|\||&&|\||;|\n)\s*)|(?P<gap>[ \t]+)"
    r"|(?P<none>(?:2|&)?>[ \t]*/dev/null(?![^\s|;&])|2>&1(?![^\s|;&]))"
    r"|(?P<word>(?:[\w./:=,@%+^~-]|'[^']*'|\"[^\"$`\\]*\")+)",
    re.ASCII,
)
"""A part of a command line in which the shell expands nothing."""
MAX_FILE = 4 << 20
MAX_COMMAND = 2_000
MAX_PATHS = 64
MAX_PATH = 4096
"""The bytes of the longest path that the system opens."""
MAX_SEARCHED = 128 << 10
"""The characters of a command that are searched; a longer one may leave a process behind."""
TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class PlannedWrite(NamedTuple):
    """A file before and after a call; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """The arguments of one call."""

    command: str | None = None
    """The command line; secrets are masked."""
    paths: tuple[str, ...] = ()
    """The absolute paths that the arguments name."""
    changes_only_paths: bool = False
    may_continue: bool = False
    writes: tuple[PlannedWrite, ...] = ()


def read_arguments(tool: str | None, text: str, directory: str | None) -> ToolArguments:
    """Return the arguments of a tool that runs in a directory; unknown ones count as a tool that changes anything."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return ToolArguments()
    if tool not in FILE_TOOLS:
        command = _first_text(value, COMMANDS)
        has_flag = any(
            value.get(name) for name in ("run_in_background", "is_background", "background", "async")
        )
        # A tool without a command line, such as one of a server, may start anything.
        return ToolArguments(
            command=None if command is None else mask_command(command),
            changes_only_paths=tool in SHELLS and command is not None and only_reads(command),
            may_continue=bool(has_flag or (command is not None and _may_continue(command))),
        )
    named = _named_paths(value)
    paths = tuple(dict.fromkeys(_absolute(path, directory) for path in named[:MAX_PATHS]))
    is_known = bool(paths) and len(named) <= MAX_PATHS and all(paths)
    paths = tuple(filter(None, paths))
    writes = tuple(_planned(value, paths[0])) if is_known and len(paths) == 1 else ()
    return ToolArguments(paths=paths, changes_only_paths=is_known, writes=writes)


def _may_continue(command: str) -> bool:
    return len(command) > MAX_SEARCHED or BACKGROUND.search(command) is not None


def only_reads(command: str) -> bool:
    """Return whether a command line runs only programs that read, and writes no file; False if that is not known."""
    if len(command) > MAX_COMMAND:
        return False
    words: list[str] = []
    at = 0
    while at < len(command):
        part = SHELL_PART.match(command, at)
        if part is None:
            return False
        if part["word"] is not None:
            words.append(part["word"])
        elif part["end"] is not None:
            if not _only_reads(words):
                return False
            words = []
        at = part.end()
    return _only_reads(words)


def _only_reads(words: Sequence[str]) -> bool:
    """Return whether one command only reads; its words may be quoted."""
    if not words or words[0] not in READERS:
        return False
    program, *rest = words[0], *(word.replace("'", "").replace('"', "") for word in words[1:])
    if program == "sed":
        return (
            len(rest) > 1
            and rest[0] == "-n"
            and PRINTED_LINES.fullmatch(rest[1]) is not None
            and not any(word.startswith("-") for word in rest[2:])
        )
    if program == "git" and (not rest or rest[0] not in GIT_READERS):
        return False
    forbidden = NOT_READING.get(program)
    return forbidden is None or not any(forbidden.match(word) for word in rest)


def mask_command(command: str) -> str:
    """Return a command line with secrets masked, cut to `MAX_COMMAND` characters."""
    from git_envhist.secrets.masking import mask_text  # loaded late: a tool that edits files has no command

    # Mask before cutting: half of a secret is not recognized.
    masked = mask_text(command[: 64 * MAX_COMMAND])
    return masked if len(masked) <= MAX_COMMAND else masked[: MAX_COMMAND - 1] + "…"


def trace_context(event: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the trace context of an event, or of the environment; None if there is none in W3C's form."""
    for value in (event.get("traceparent"), environ.get("TRACEPARENT")):
        if isinstance(value, str) and TRACE.fullmatch(value):
            return value
    return None


def _named_paths(value: Mapping[str, Any]) -> list[str]:
    named = _first_text(value, PATHS)
    if named is not None:
        return [named]
    patch = _first_text(value, PATCHES)
    if patch is None or "*** Begin Patch" not in patch:
        return []
    return [name.strip() for name in PATCH_LINE.findall(patch)]


def _absolute(path: str, directory: str | None) -> str:
    """Return the absolute path; empty if there is none that the system can open."""
    if len(path) > MAX_PATH or len(directory or "") > MAX_PATH:
        return ""
    joined = os.path.join(directory or "", path)
    try:
        is_short = len(os.fsencode(joined)) <= MAX_PATH
    except UnicodeEncodeError:
        return ""
    return os.path.normpath(joined) if is_short and joined.startswith("/") and "\0" not in joined else ""


def _planned(value: Mapping[str, Any], path: str) -> Iterator[PlannedWrite]:
    before = _read(path)
    whole = _first_text(value, WHOLE)
    if whole is not None:
        yield PlannedWrite(path, before, _bytes(whole))
        return
    after = before
    edits = value.get("edits")
    for edit in edits if isinstance(edits, list) else [value]:
        after = _replaced(after, edit) if isinstance(edit, Mapping) and after is not None else None
    if after is not None:
        yield PlannedWrite(path, before, after)


def _replaced(data: bytes, edit: Mapping[str, Any]) -> bytes | None:
    old, new = _first_text(edit, OLD), _first_text(edit, NEW)
    if not old or new is None:
        return None
    is_all = any(edit.get(name) is True for name in ALL)
    before, after = _bytes(old), _bytes(new)
    found = data.count(before)
    if found == 0 or (found > 1 and not is_all):
        return None
    # Several edits can double the text each time.
    if len(data) + found * (len(after) - len(before)) > MAX_FILE:
        return None
    return data.replace(before, after)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", opener=open_file_only) as file:
            data = file.read(MAX_FILE + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= MAX_FILE else None


def _first_text(value: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((value[name] for name in names if isinstance(value.get(name), str)), None)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
