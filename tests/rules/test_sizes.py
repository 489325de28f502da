"""Rules on size and completeness that hold for every module of the package."""

from __future__ import annotations

import ast

from tests.rules.source import sources

LINES_IN_A_FUNCTION = 60
"""The limit of lines in a function, so that it fits a screen; a file has no limit."""

LONGER_FUNCTIONS: dict[str, str] = {}
"""Long functions with steps that share too much to be split, each with its reason."""

SOURCES = sources()


def test_functions_fit_a_screen() -> None:
    too_long = [
        f"{source.name}.{function.name}: {_length(function)} lines"
        for source in SOURCES
        for function in source.functions
        if _length(function) > LINES_IN_A_FUNCTION
        and f"{source.name}.{function.name}" not in LONGER_FUNCTIONS
    ]
    assert too_long == []


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_modules_have_docstrings() -> None:
    assert [source.name for source in SOURCES if not ast.get_docstring(source.tree)] == []


def test_source_has_no_marks_of_unfinished_work() -> None:
    marks = ("TODO", "FIXME", "XXX", "HACK", "NotImplementedError", "# type: ignore\n")
    assert [(source.name, mark) for source in SOURCES for mark in marks if mark in source.text] == []
