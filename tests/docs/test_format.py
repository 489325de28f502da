"""The examples of docs/internals/format.md are read, and written again unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from git_envhist.snapshots.chunks import read_pointer, write_pointer
from git_envhist.snapshots.fact_text import fact_line, read_fact, read_fact_text, write_facts
from git_envhist.snapshots.list_texts import read_git_changes, read_missing, write_git_changes, write_missing
from git_envhist.snapshots.manifest import BUDGET, read_shard, write_shard
from git_envhist.snapshots.stored_names import stored_name, true_name

TEXT = (Path(__file__).resolve().parents[2] / "docs/internals/format.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```([a-z-]+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
NAMES = TEXT.partition("| name | stored |")[2].partition("\n\n")[0]


def test_the_shard_is_read_and_written_the_same() -> None:
    data = BLOCKS["shard"].encode()
    shard = read_shard(data)
    assert len(shard.entries) == 6
    assert write_shard(shard.directory, shard.own, shard.entries) == data


def test_the_lists_are_read_and_written_the_same() -> None:
    missing, changed = BLOCKS["missing"].encode(), BLOCKS["git-changed"].encode()
    assert write_missing(read_missing(missing)) == missing
    assert write_git_changes(read_git_changes(changed)) == changed


def test_facts_are_read_and_written_the_same() -> None:
    data = BLOCKS["facts"].encode()
    text = read_fact_text("pip", data)
    assert text is not None
    facts = [read_fact("pip", line) for line in text.lines]
    assert [(fact.key, fact.value, fact.auto) for fact in facts if fact] == [
        (".venv/click", "8.1.7", True),
        (".venv/flask", "3.0.1", False),
    ]
    assert write_facts("pip", text.version, [fact_line(fact) for fact in facts if fact]) == data


def test_the_pointer_is_read_and_written_the_same() -> None:
    data = BLOCKS["pointer"].encode()
    pointer = read_pointer(data)
    assert write_pointer(pointer.size, pointer.tree) == data


@pytest.mark.parametrize(("name", "stored"), re.findall(r"^\| `(.*)` \| `(.*)` \|$", NAMES, re.MULTILINE))
def test_names_are_stored_as_shown(name: str, stored: str) -> None:
    assert stored_name(name.encode()) == stored.encode()
    assert true_name(stored.encode()) == name.encode()


def test_limits_are_those_of_the_reader() -> None:
    assert f"{BUDGET.size >> 20} MiB and\n{BUDGET.lines:,} lines a shard" in TEXT
    assert f"{BUDGET.line >> 20} MiB a line, {BUDGET.depth:,} levels" in TEXT
    assert f"{BUDGET.path_bytes >> 30} GiB for the paths" in TEXT
