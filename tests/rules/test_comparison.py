"""Every test that docs/internals/comparison.md names for a promise exists."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

from tests.rules.built import commands, config_keys, options
from tests.rules.source import CHECKOUT
from tests.rules.test_contract import _exists

TEXT = (CHECKOUT / "docs/internals/comparison.md").read_text(encoding="utf-8")
ONE_OF_A_CALL = re.compile(r"(\w+)\((\w*)=?[^)]*\)|(\w+)=?")


def rows(heading: str) -> list[str]:
    table = TEXT.partition(heading)[2].partition("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][2:]


def told_here(row: str) -> list[str]:
    """Return the code in the second column of the table: the command or call of git-envhist."""
    return re.findall(r"`([^`]+)`", row.split(" | ")[1])


ROWS = rows("## With platforms' checkpoints")
LIBRARIES = rows("## With the checkpoint libraries")


def test_every_promise_of_platforms_has_a_test_that_exists() -> None:
    assert len(ROWS) > 15
    for row in ROWS:
        *_, tests, _ = row.split("|")
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", tests)
        assert named, row
        for path, name in named:
            assert (CHECKOUT / "tests" / path).is_file(), row
            assert not name or _exists(f"{path}::{name}"), row


def test_every_command_of_the_tables_exists() -> None:
    known, spelled = commands(), {option.rpartition(" ")[2] for option in options()}
    words = {word for row in ROWS for word in told_here(row)}
    assert len(words) > 15
    for word in words:
        first = word.removeprefix("git ").split()
        if word.startswith("git-envhist workbench "):
            assert word.split()[2:] in (["checkpoint", "create"], ["restore"]), word
        elif word.startswith("envhist."):
            key = f"config {word.removesuffix('.*').lower()}"
            assert key in {one.lower() for one in config_keys()}, word
        elif word.startswith("--"):
            assert word in spelled, word
        elif first[0] == "envlog" and len(first) > 1:
            assert " ".join(first[:2]) in known, word
        else:
            assert first[0] in known or f"envlog {first[0]}" in known, word
        for option in (one for one in first if one.startswith("--") and one != "--"):
            assert option in spelled, word


def test_every_call_of_the_table_of_libraries_exists() -> None:
    modules = [
        import_module(f"git_envhist.compat.{name}") for name in ("praisonai", "chimera", "chimera.commands")
    ]
    classes = [getattr(one, name) for one in modules[:2] for name in one.__all__]
    for word in [word for row in LIBRARIES for word in told_here(row)]:
        found = ONE_OF_A_CALL.fullmatch(word)
        if found is None or word == "commands":
            continue
        name, parameter = found[1] or found[3], found[2]
        calls = [getattr(one, name) for one in (*classes, *modules) if hasattr(one, name)]
        takes = [one for one in classes if name in inspect.signature(one).parameters]
        assert calls or takes, word
        assert not parameter or any(parameter in inspect.signature(one).parameters for one in calls), word
