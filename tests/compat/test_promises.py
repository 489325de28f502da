"""The tests and imports named in docs/internals/comparison.md and docs/guide/compat.md exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from tests.rules.source import CHECKOUT

HERE = Path(__file__).parent


def test_every_test_of_a_promise_exists() -> None:
    text = (
        (CHECKOUT / "docs/internals/comparison.md")
        .read_text(encoding="utf-8")
        .partition("agents' frameworks")[2]
    )
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert len(named) > 20
    for path, name in named:
        tree = ast.parse((HERE / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (path, name)


def test_every_documented_import_works() -> None:
    text = (CHECKOUT / "docs/guide/compat.md").read_text(encoding="utf-8")
    lines = re.findall(r"from (git_envhist\.compat[\w.]*) import ([\w, ]+|…)", text)
    assert len(lines) > 6
    for module, names in lines:
        found = importlib.import_module(module)
        for name in re.findall(r"\w+", names.partition(" as ")[0]):
            assert hasattr(found, name), (module, name)


def test_original_libraries_are_not_imported() -> None:
    for path in (CHECKOUT / "git_envhist/compat").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {one.split(".")[0] for one in modules} & {"praisonaiagents", "chimera", "docker"}, path
