"""Check that docs/architecture.md names every package in the order of the layers, and every module of each."""

from __future__ import annotations

import re

from tests.rules.source import CHECKOUT, PACKAGE
from tests.rules.test_layers import LAYERS

PAGE = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8")
LINES = PAGE.split("```")[1].strip("\n").split("\n")
LINES_OF_PAGE = 150


def _packages() -> list[list[str]]:
    """Return the names at the beginning of each line that is not indented."""
    heads = [re.split(r" {4,}", line)[0] for line in LINES if not line.startswith(" ")]
    return [[name.rstrip("/") for name in head.split()] for head in heads]


def _modules() -> dict[str, set[str]]:
    """Return the modules and packages that the indented lines name, by package."""
    found: dict[str, set[str]] = {}
    package = ""
    for line in LINES:
        if not line.startswith(" "):
            package = line.split()[0].rstrip("/")
            continue
        names, _, text = line.strip().partition(":")
        if names in found or names in ("compat", "mcp", "tui"):
            package, names = names, text
        found.setdefault(package, set()).update(name.rstrip("/") for name in names.split())
    return found


def test_page_names_the_packages_in_the_order_of_the_layers() -> None:
    assert _packages() == [line.split() for line in LAYERS.strip().split("\n")]


def test_page_names_every_module_of_a_package_and_no_other() -> None:
    there = {}
    for directory in (path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()):
        modules = {path.stem for path in directory.glob("*.py")} - {"__init__", "__main__"}
        packages = {path.name for path in directory.iterdir() if (path / "__init__.py").exists()}
        plain = {path.name for path in directory.iterdir() if path.is_dir() and any(path.glob("*.py"))}
        if modules or packages or plain:
            there[directory.name] = modules | packages | plain
    assert _modules() == there


def test_page_is_short() -> None:
    assert PAGE.count("\n") <= LINES_OF_PAGE
