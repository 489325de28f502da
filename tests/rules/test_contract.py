"""Every line of the contract has existing tests, and everything that is built has a line."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.rules.built import built
from tests.rules.contract_map import LINES, Line
from tests.rules.source import CHECKOUT


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.id)
def test_line_of_the_contract_has_existing_tests(line: Line) -> None:
    assert line.tests, f"no test checks: {line.says}"
    assert not [test for test in line.tests if not _exists(test)]


def test_everything_built_has_a_line() -> None:
    assert not sorted(built() - {line.id for line in LINES})


def test_no_line_occurs_twice() -> None:
    ids = [line.id for line in LINES]
    assert not sorted({one for one in ids if ids.count(one) > 1})


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return name in _tests_of(path)


@cache
def _tests_of(path: str) -> frozenset[str]:
    file = CHECKOUT / "tests" / path
    if not file.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return frozenset(name for name in found if name.split("::")[-1].startswith("test_"))
