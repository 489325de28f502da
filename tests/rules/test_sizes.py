"""One thought a function, one noun a file."""

from __future__ import annotations

import ast

import pytest

from tests.rules.source import Source, sources

LINES_IN_A_FILE = 300
LINES_IN_A_FUNCTION = 60

# What is longer, and why it is one thing all the same.
LONGER_FILES: dict[str, str] = {}
# Functions whose steps share so much that apart they would be harder to read.
LONGER_FUNCTIONS: dict[str, str] = {}

SOURCES = sources()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_file_holds_one_noun(source: Source) -> None:
    assert len(source.lines) <= LINES_IN_A_FILE or source.name in LONGER_FILES, (
        "look for the second noun in it"
    )


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_function_fits_a_screen(source: Source) -> None:
    long = [f"{f.name}: {_length(f)} lines" for f in source.functions if _length(f) > LINES_IN_A_FUNCTION]
    assert not [line for line in long if f"{source.name}.{line.split(':')[0]}" not in LONGER_FUNCTIONS]


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_no_exception_outlives_its_reason() -> None:
    lengths = {source.name: len(source.lines) for source in SOURCES}
    assert not [name for name in LONGER_FILES if lengths.get(name, 0) <= LINES_IN_A_FILE]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_module_says_what_it_is_for(source: Source) -> None:
    assert ast.get_docstring(source.tree)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_nothing_is_left_for_later(source: Source) -> None:
    marks = ("TODO", "FIXME", "XXX", "HACK", "NotImplementedError", "# type: ignore\n")
    assert not [mark for mark in marks if mark in source.text]
