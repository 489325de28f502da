"""Every error has a hint and a status that the manual explains."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import git_envhist
from git_envhist.errors import EnvhistError, Interrupted
from tests.rules.source import CHECKOUT, Source, sources

PAGES = (CHECKOUT / "docs" / "guide" / "troubleshooting.md",)
# An interrupted user needs no hint; a missing library prints its own message.
WITHOUT = (Interrupted,)
OPTIONAL = ("git_envhist.mcp", "git_envhist.compat", "git_envhist.tui")


def kinds() -> list[type[EnvhistError]]:
    """Return every class of errors, also those of modules that are loaded late."""
    for module in pkgutil.walk_packages(git_envhist.__path__, "git_envhist."):
        if not module.name.startswith(OPTIONAL):
            importlib.import_module(module.name)
    return sorted({EnvhistError, *_below(EnvhistError)}, key=lambda kind: kind.__name__)


def _below(kind: type[EnvhistError]) -> Iterator[type[EnvhistError]]:
    for one in kind.__subclasses__():
        if one.__module__.startswith("git_envhist."):
            yield one
            yield from _below(one)


KINDS = kinds()
BY_NAME = {kind.__name__: kind for kind in KINDS}


def gives_hint(kind: type[EnvhistError]) -> bool:
    """Return whether a class has its own hint: a usual one, or one that its constructor makes."""
    if kind is EnvhistError or issubclass(kind, WITHOUT):
        return True
    # The base class's hint is not specific to this error.
    if kind.usual_hint not in (None, EnvhistError.usual_hint):
        return True
    for one in kind.__mro__:
        made = one.__dict__.get("__init__")
        code = getattr(made, "__code__", None)
        if one is EnvhistError or code is None:
            continue
        return any("hint" in words for words in (code.co_varnames, code.co_names, *_tuples(code.co_consts)))
    return False


def _tuples(constants: tuple[object, ...]) -> list[tuple[object, ...]]:
    """Return the tuples of a code object's constants, including the keyword names of calls."""
    return [one for one in constants if isinstance(one, tuple)]


def without_hint(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        kind = BY_NAME.get(name)
        given = any(word.arg in ("hint", None) for word in node.keywords)
        if kind is not None and not given and not gives_hint(kind):
            yield f"{source.name}:{node.lineno}: {name}"


def test_no_error_is_raised_without_a_hint() -> None:
    assert not [place for source in sources() for place in without_hint(source)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_status_of_an_error_is_explained(kind: type[EnvhistError]) -> None:
    for page in PAGES:
        explained = {
            int(n)
            for line in re.findall(r"^\| ([\d, ]+) \|", page.read_text(), re.MULTILINE)
            for n in line.split(",")
        }
        assert kind.exit_code in explained


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_class_has_a_docstring_and_a_code_for_programs(kind: type[EnvhistError]) -> None:
    assert kind.__doc__
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)


def test_the_manual_and_the_page_explain_the_same_statuses() -> None:
    manual = (CHECKOUT / "docs" / "man" / "git-envlog.rst").read_text()
    told = manual[manual.index("EXIT STATUS\n") : manual.index("SEE ALSO\n")]
    for number in ("0", "1", "3", "4", "125", "128", "129", "130", "143"):
        assert re.search(rf"(?<!\d){number}(?!\d)", told), number
