"""The words of a command line reach click as a git user means them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.cli.parser import Words, first_operand, split_words, takes_next, wants_json

VALUED = frozenset({"-m", "--message", "-n", "--max-count", "-C", "--date"})


@pytest.mark.parametrize(
    ("line", "options", "paths"),
    [
        ("a b", ["a", "b"], None),
        ("a -- b", ["a"], ("b",)),
        ("a --", ["a"], ()),
        ("-- -5 -- --json", [], ("-5", "--", "--json")),
        ("-5", ["--max-count=5"], None),
        ("-n 5", ["-n", "5"], None),
        ("-n5", ["-n5"], None),
        ("-m -5", ["-m", "-5"], None),
        ("-m -- b", ["-m", "--", "b"], None),
        ("-zm -- b", ["-zm", "--", "b"], None),
        ("-mz -- b", ["-mz"], ("b",)),
        ("--message -- -- b", ["--message", "--"], ("b",)),
        ("--message=-- -- b", ["--message=--"], ("b",)),
        ("--color file", ["--color=always", "file"], None),
        ("--color=never file", ["--color=never", "file"], None),
        ("--no-color", ["--color=never"], None),
        ("--json x", ["--json=array", "x"], None),
        ("-m --json", ["-m", "--json"], None),
        ("-", ["-"], None),
        ("-m", ["-m"], None),
    ],
)
def test_command_line_is_split_at_the_first_separator(
    line: str, options: list[str], paths: tuple[str, ...] | None
) -> None:
    assert split_words(line.split(), VALUED, counts=True) == Words(options, paths)


def test_number_is_a_count_only_for_commands_with_counts() -> None:
    assert split_words(["-5"], VALUED).options == ["-5"]


@pytest.mark.parametrize(
    ("line", "place"),
    [("capture x", 0), ("-C capture name", 2), ("-Cdir show", 1), ("--oneline", None), ("-- capture", None)],
)
def test_subcommand_is_the_first_operand(line: str, place: int | None) -> None:
    assert first_operand(line.split(), VALUED) == place


def test_json_option_is_found_in_invalid_command_lines() -> None:
    assert wants_json(["--bogus", "--json"])
    assert wants_json(["--json=lines"])
    assert not wants_json(["--", "--json"])


@given(
    st.lists(st.sampled_from(["a", "-m", "--message", "-zm", "--json", "-7", "-", "--date"])),
    st.lists(st.text()),
)
def test_words_after_the_separator_are_unchanged(before: list[str], after: list[str]) -> None:
    if before and takes_next(before[-1], VALUED):
        before.append("value")
    assert split_words([*before, "--", *after], VALUED, counts=True).paths == tuple(after)
