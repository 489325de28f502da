"""Find the newest conversation that an agent stored about a working tree.

Agents store conversations below the home directory, each in a form of its own that no agent promises to keep. They show
that an agent worked where its hooks were not called: a new version may call other events, or none. If a form changed,
nothing is found and nothing is reported.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from glob import escape, iglob
from typing import NamedTuple

from git_envhist.integrations.agents.events import version_in
from git_envhist.platform import open_file_only

MAX_FILES = 500
"""The newest files of an agent that are read to find one about a working tree."""
HEAD, TAIL = 1 << 16, 1 << 16
SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class AgentConversation(NamedTuple):
    """One session of an agent, as the agent stored it."""

    session: str
    at: float
    """The time of its last change."""
    version: str | None = None


def newest_conversation(
    agent: str, root: str, environ: Mapping[str, str], *, after: float, before: float
) -> AgentConversation | None:
    """Return the newest conversation about a working tree that changed last between two times, or None."""
    find = FINDERS.get(agent)
    if find is None:
        return None
    with suppress(OSError, ValueError):
        found = (one for one in find(root, environ, after) if after < one.at < before)
        return max(found, key=lambda one: one.at, default=None)
    return None


def _claude_code(root: str, environ: Mapping[str, str], after: float) -> Iterator[AgentConversation]:
    place = os.path.join(
        _home(environ, "CLAUDE_CONFIG_DIR", ".claude"), "projects", re.sub(r"[^0-9A-Za-z]", "-", root)
    )
    for path, at in _newest(f"{escape(place)}/*.jsonl", after):
        head, tail = _ends_of(path)
        # A session can be continued by another version. A file without a version has no message yet.
        if version := version_in(b"\n".join(reversed(tail.split(b"\n")))) or version_in(head):
            yield AgentConversation(os.path.basename(path)[: -len(".jsonl")], at, version)


def _codex(root: str, environ: Mapping[str, str], after: float) -> Iterator[AgentConversation]:
    place = os.path.join(_home(environ, "CODEX_HOME", ".codex"), "sessions")
    for path, at in _newest(f"{escape(place)}/*/*/*/rollout-*.jsonl", after):
        head, _ = _ends_of(path)
        found = SESSION_ID.search(os.path.basename(path))
        if found and _names(head, "cwd", root):
            yield AgentConversation(found[0], at, version_in(head))


def _copilot(root: str, environ: Mapping[str, str], after: float) -> Iterator[AgentConversation]:
    place = os.path.join(_home(environ, "COPILOT_HOME", ".copilot"), "session-state")
    for path, at in _newest(f"{escape(place)}/*/events.jsonl", after):
        head, _ = _ends_of(path)
        if _names(head, "cwd", root):
            yield AgentConversation(os.path.basename(os.path.dirname(path)), at, version_in(head))


def _gemini(root: str, environ: Mapping[str, str], after: float) -> Iterator[AgentConversation]:
    place = os.path.join(_home(environ, None, ".gemini"), "tmp")
    for path, at in _newest(f"{escape(place)}/*/chats/session-*.jsonl", after):
        project = os.path.join(os.path.dirname(os.path.dirname(path)), ".project_root")
        if os.fsdecode(_ends_of(project)[0]).strip() != root:
            continue
        first = json.loads(_ends_of(path)[0].partition(b"\n")[0])
        if isinstance(session := first.get("sessionId"), str):
            yield AgentConversation(session, at)


def _opencode(root: str, environ: Mapping[str, str], after: float) -> Iterator[AgentConversation]:
    import sqlite3  # loaded late: one agent needs it

    data = environ.get("XDG_DATA_HOME") or os.path.join(environ.get("HOME", "/"), ".local/share")
    path = os.path.join(data, "opencode/opencode.db")
    if not os.path.isfile(path):
        return
    words = "SELECT id, time_updated, version FROM session WHERE parent_id IS NULL AND directory = ?"
    with suppress(sqlite3.Error):
        base = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=1)
        try:
            for session, updated, version in base.execute(words, (root,)).fetchall():
                yield AgentConversation(str(session), float(updated) / 1000, str(version))
        finally:
            base.close()


def _quoted(path: str) -> str:
    from urllib.parse import quote  # loaded late: one agent needs it

    return quote(path)


Find = Callable[[str, Mapping[str, str], float], Iterator[AgentConversation]]
FINDERS: dict[str, Find] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "copilot": _copilot,
    "gemini": _gemini,
    "opencode": _opencode,
}
"""Cursor and Antigravity CLI are not among them: their files could not be looked at."""


def _home(environ: Mapping[str, str], variable: str | None, name: str) -> str:
    own = environ.get(variable) if variable else None
    return own or os.path.join(environ.get("HOME") or os.path.expanduser("~"), name)


def _newest(pattern: str, after: float) -> list[tuple[str, float]]:
    """Return the newest files that changed after a time, each with its time."""
    found = []
    for path in iglob(pattern):
        with suppress(OSError):
            found.append((os.stat(path).st_mtime, path))
    newest = sorted((one for one in found if one[0] > after), reverse=True)[:MAX_FILES]
    return [(path, at) for at, path in newest]


def _ends_of(path: str) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of a file; nothing of a file that cannot be read."""
    with suppress(OSError), open(path, "rb", opener=open_file_only) as file:
        head = file.read(HEAD)
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        return head, file.read(TAIL)
    return b"", b""


def _names(head: bytes, key: str, root: str) -> bool:
    return f'"{key}":{json.dumps(root)}'.encode() in head
