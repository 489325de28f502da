"""The quick parser reads words as click does, and leaves all others to click."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.cli.click_parser import read_by_click
from git_envhist.cli.command import Command
from git_envhist.cli.output import Output
from git_envhist.cli.parser import read_plainly, split_words
from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, load
from git_envhist.errors import UsageError
from tests.support.depth import examples

PLACES = [*PROGRAMS.values(), *(subcommand.place for subcommand in SUBCOMMANDS.values())]
VALUES = ("", "a", "-", "20", "-5", "0x1", " 7", "pass", "manual", "--json", "-z", "ü", "a=b", "\udcff")
TOLD = "what was told"


def loaded(place: str) -> Command:
    command = load(place)
    assert isinstance(command, Command)
    return command


def by_click(command: Command, words: list[str]) -> object:
    """Return the values that click reads; None for an error or help."""
    output = Output()
    try:
        values = read_by_click(command, words, "git-envlog", output)
    except UsageError:
        return None
    return TOLD if values is None else values


def lines(command: Command) -> st.SearchStrategy[list[str]]:
    spellings = [spelling for option in command.options for spelling in option.spellings]
    word = st.sampled_from([*spellings, *VALUES])
    joined = st.builds(lambda spelling, value: spelling + value, st.sampled_from(spellings), word)
    given_value = st.builds(lambda spelling, value: f"{spelling}={value}", st.sampled_from(spellings), word)
    return st.lists(st.one_of(word, joined, given_value), max_size=6)


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=examples(25, 100))
@given(st.data())
def test_plain_parser_agrees_with_click(place: str, data: st.DataObject) -> None:
    command = loaded(place)
    words = split_words(data.draw(lines(command)), command.valued, counts=command.counts).options
    plain = read_plainly(words, command.options, command.arguments)
    if plain is not None:
        assert plain == by_click(command, words)


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("git_envhist.cli.commands.log:log_command", ""),
        ("git_envhist.cli.commands.log:log_command", "-n20"),
        ("git_envhist.cli.commands.log:log_command", "-n 20 --oneline @~3.. --json=lines"),
        (
            "git_envhist.cli.commands.log:log_command",
            "--since=monday --until now -z --verdict pass --verdict fail",
        ),
        ("git_envhist.cli.commands.diff:envdiff", "--name-status a b -M50% -C x -C y"),
        ("git_envhist.cli.commands.capture:capture", "-m one -m two --if-changed --meta a=b"),
        ("git_envhist.cli.commands.key:key", ""),
    ],
)
def test_usual_command_lines_need_no_click(place: str, line: str) -> None:
    command = loaded(place)
    plain = read_plainly(line.split(), command.options, command.arguments)
    assert plain is not None
    assert plain == by_click(command, line.split())


@pytest.mark.parametrize(
    "line", ["-h", "--help", "--version", "--bogus", "-n", "-n x", "--oneline=x", "-zp", "--verdict=x"]
)
def test_other_command_lines_are_left_to_click(line: str) -> None:
    command = loaded("git_envhist.cli.commands.log:log_command")
    assert read_plainly(line.split(), command.options, command.arguments) is None
