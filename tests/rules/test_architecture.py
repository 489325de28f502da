"""What docs/architecture.md says of the house is so: no room that is gone, none that is left out."""

from __future__ import annotations

import re

import pytest

from tests.rules.source import CHECKOUT

TREE = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```")[1]
SOURCE = CHECKOUT / "git_envhist"
TOLD_BY_FILE = ("capture", "facts", "store", "history", "restore", "recently")
NAMED = re.findall(r"\b([a-z_]+\.py)\b", TREE)


@pytest.mark.parametrize("room", TOLD_BY_FILE)
def test_every_module_of_a_room_is_named(room: str) -> None:
    there = {path.name for path in (SOURCE / room).glob("*.py")} - {"__init__.py"}
    assert not sorted(there - set(NAMED))


def test_every_room_is_named() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert not sorted(rooms - set(re.findall(r"\b([a-z_]+)/", TREE)))


def test_what_is_named_is_there() -> None:
    there = {path.name for path in (*SOURCE.rglob("*.py"), CHECKOUT / "tests" / "support" / "oracle.py")}
    assert not sorted(set(NAMED) - there)
