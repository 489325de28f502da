"""Few modules write to the standard streams, and each of them escapes control characters."""

from __future__ import annotations

import ast

import pytest

from tests.rules.source import Source, sources

MAY_PRINT = {
    "git_envhist.handlers.agent_worktree": "the directory that the agent reads, and errors through escape",
    "git_envhist.cli.errors": "stderr, through as_bytes",
    "git_envhist.compat.workbench": "its own answers, through for_people",
    "git_envhist.checks.sandbox_exec": "a program by itself, which escapes what it says",
}
MAY_WRITE = {
    "git_envhist.cli.output": "stdout, through as_bytes",
    "git_envhist.cli.progress": "one line on a terminal, through as_bytes",
    "git_envhist.cli.views.details": "the output of the user's own check, as it comes",
    "git_envhist.trace": "printable characters alone",
}
STREAMS = {"STDOUT", "STDERR", "1", "2"}


def prints(source: Source) -> list[int]:
    """Return the lines that print, or write to `sys.stdout` and `sys.stderr`."""
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name == "print" or name.startswith(("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer")):
            found.append(node.lineno)
    return found


def writes(source: Source) -> list[int]:
    """Return the lines that write to a standard stream by its number."""
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and node.args)
    return [
        call.lineno
        for call in calls
        if ast.unparse(call.func) == "os.write" and ast.unparse(call.args[0]) in STREAMS
    ]


@pytest.mark.parametrize("source", list(sources()), ids=lambda source: source.name)
def test_module_prints_through_the_output_layer(source: Source) -> None:
    if source.name not in MAY_PRINT:
        assert not prints(source), "use Session, Output, complain or warn"
    if source.name not in MAY_WRITE:
        assert not writes(source), "use Output"


def test_every_exception_is_still_needed() -> None:
    by_name = {source.name: source for source in sources()}
    assert all(prints(by_name[name]) for name in MAY_PRINT)
    assert all(writes(by_name[name]) for name in MAY_WRITE)


def test_browser_makes_texts_of_one_type() -> None:
    for source in sources():
        if source.package == "tui" and source.name != "git_envhist.tui.styled_text":
            assert "from rich.text import" not in source.text, source.name
