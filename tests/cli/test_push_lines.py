"""The lines about the contents of a push."""

from __future__ import annotations

from git_envhist.cli.commands.push import outgoing_lines
from git_envhist.model.sharing import ClassSize, OutgoingScan


def test_push_lists_which_classes_are_encrypted() -> None:
    lines = list(
        outgoing_lines(OutgoingScan(shares=(ClassSize("sealed", 1, 40), ClassSize("code", 2, 2048))))
    )
    assert [line.rpartition(", ")[2] for line in lines] == [
        "sealed: only the names are readable",
        "not encrypted",
    ]
    assert [line.split()[0] for line in lines] == ["sealed", "code"]
