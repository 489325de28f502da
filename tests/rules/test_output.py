"""Few modules write to the standard streams, and each of them escapes control characters."""

from __future__ import annotations

import ast

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
PRINTING = ("print(", "sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer")
FIRST = {"print", "sys", "os"}


def prints(source: Source) -> list[int]:
    """Return the lines that print, or write to `sys.stdout` and `sys.stderr`."""
    return [call.lineno for call in source.nodes(ast.Call) if _called(call).startswith(PRINTING)]


def writes(source: Source) -> list[int]:
    """Return the lines that write to a standard stream by its number."""
    return [
        call.lineno
        for call in source.nodes(ast.Call)
        if call.args and _called(call) == "os.write(" and ast.unparse(call.args[0]) in STREAMS
    ]


def _called(call: ast.Call) -> str:
    """Return the called name with a parenthesis, or an empty text if `ast.unparse` need not be asked."""
    first: ast.expr = call.func
    while isinstance(first, ast.Attribute):
        first = first.value
    return ast.unparse(call.func) + "(" if isinstance(first, ast.Name) and first.id in FIRST else ""


def test_modules_print_through_the_output_layer() -> None:
    # The others use Session, Output, complain or warn.
    assert {source.name: prints(source) for source in sources() if prints(source)}.keys() == MAY_PRINT.keys()
    assert {source.name: writes(source) for source in sources() if writes(source)}.keys() == MAY_WRITE.keys()


def test_browser_makes_texts_of_one_type() -> None:
    for source in sources():
        if source.package == "tui" and source.name != "git_envhist.tui.styled_text":
            assert "from rich.text import" not in source.text, source.name
