"""Hooks that git's configuration names (git 2.54 and newer): a few sections at the end of a file, between two marks.

They stand beside whatever is in the hooks directory, so nothing has to be chained, and no other tool's installation
can lose them.
"""

from __future__ import annotations

import re

from git_envhist.model.causing import FileEdit, InstalledPart
from git_envhist.triggers.edits import look, rewrite
from git_envhist.triggers.git.events import HOOKS
from git_envhist.triggers.git.shim import BLOCK, END, START, command


def plan(path: str, program: str, *, everywhere: bool = False) -> FileEdit:
    """The sections in a file of git's configuration, in place of older ones."""
    return rewrite(path, _with(_read(path), sections(program, everywhere=everywhere)))


def plan_away(path: str) -> FileEdit | None:
    """The file without them; None where they are not in it."""
    text = _read(path)
    left = BLOCK.sub(b"", text)
    if left == text:
        return None
    return rewrite(path, left or None)


def sections(program: str, *, everywhere: bool = False) -> bytes:
    """What is written."""
    lines = []
    for event in HOOKS:
        told = _quoted(command(event, program, everywhere=everywhere))
        lines += [f'[hook "envhist-{event}"]', f"\tevent = {event}", f"\tcommand = {told}"]
    return marked("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))


def marked(ours: bytes) -> bytes:
    """Lines of a configuration between our marks."""
    return START + b": git envlog uninstall takes these lines away\n" + ours + END + b"\n"


def parts(path: str, version: tuple[int, ...], since: tuple[int, ...]) -> tuple[InstalledPart, ...]:
    """The events that the sections name; nothing where there are none."""
    found = BLOCK.search(_read(path))
    if found is None:
        return ()
    old = version < since
    remark = (
        f"git {_dotted(version)} does not run hooks of the configuration: git envlog install" if old else ""
    )
    there = set(re.findall(r"event = (\S+)", found.group().decode("utf-8", "replace")))
    return tuple(
        InstalledPart(
            event, event in there and not old, path, remark if event in there else "not named there"
        )
        for event in HOOKS
    )


def _with(text: bytes, ours: bytes) -> bytes:
    if BLOCK.search(text):
        return BLOCK.sub(lambda _: ours, text, count=1)
    return text + (b"" if not text or text.endswith(b"\n") else b"\n") + ours


def _read(path: str) -> bytes:
    edit = rewrite(path, b"")
    content = look(edit.path)
    return content.data if content is not None else b""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
