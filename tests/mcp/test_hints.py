"""Hints that a model with nothing but the tools can follow."""

from __future__ import annotations

import ast

import pytest

from git_envhist.mcp.hints import FOR_THE_USER, PREFIX, hint_for, translate_commands, undo_tool_for
from tests.rules.source import sources


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "'git envlog --no-fold' lists every snapshot",
            "environment_history_log no-fold lists every snapshot",
        ),
        ("git envlog show @ -- <path>", "environment_history_show @ -- <path>"),
        ("'git envdiff <rev>' lists what differs", "environment_history_diff <rev> lists what differs"),
        ("to undo: git envrestore --undo", "to undo: environment_history_plan_undo"),
        ("name one: git envlog bisect --bad <rev>", "name one: environment_history_bisect bad <rev>"),
        ("git envlog task list", "environment_history_resume"),
        ("restore the newest: git envrestore @", "restore the newest: environment_history_plan_restore @"),
        ("git envlog purge <path>", f"{FOR_THE_USER}git envlog purge <path>"),
        ("git config envhist.enabled true", f"{FOR_THE_USER}git config envhist.enabled true"),
        ("name another branch", "name another branch"),
        ("give it with --message", "give it with --message"),
    ],
)
def test_commands_become_tools_or_are_for_the_user(text: str, hint: str) -> None:
    assert translate_commands(text) == hint


def test_hint_of_a_known_error_names_a_tool() -> None:
    assert hint_for("stale-plan", "git envrestore --dry-run --json") is not None
    assert "git envrestore" not in str(hint_for("stale-plan", "git envrestore --dry-run --json"))
    assert hint_for("unheard-of", None) is None
    assert hint_for("unheard-of", "wait for it") == "wait for it"


def test_way_back_names_the_tool_and_the_snapshot() -> None:
    assert undo_tool_for("git envrestore --undo", "abc") == f"{PREFIX}plan_undo"
    assert undo_tool_for("git envrestore --redo", "abc") == f"{PREFIX}plan_restore with revision abc"
    assert undo_tool_for(None, "abc") is None


def test_no_hint_of_our_programs_tells_an_agent_to_type_a_command() -> None:
    """Each literal hint in the source either names no command, or says that it is for the user."""
    told = [translate_commands(hint) for source in sources() for hint in _literal_hints(source.tree)]
    assert len(told) > 100
    assert [one for one in told if "git env" in one and not one.startswith(FOR_THE_USER)] == []
    assert any(one.startswith(f"{PREFIX}") for one in told)


def _literal_hints(tree: ast.AST) -> list[str]:
    words = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "hint"]
    return [
        word.value.value
        for word in words
        if isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
    ]
