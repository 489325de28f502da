"""The input of the completions: every command with its options and operands, as the programs declare them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from git_envhist.cli.command import Command
from git_envhist.cli.formats import STYLES
from git_envhist.cli.parser import Option
from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, load
from git_envhist.integrations.agents.registry import AGENTS

SUMMARIES = {
    "git-envlog": "read and keep the history of an environment",
    "git-envdiff": "show what changed in the environment",
    "git-envrestore": "restore an earlier environment",
}
NO_COLOR = Option(("--no-color",), "no_color", "no colour", is_flag=True)
DATES = (*STYLES, "local")
KINDS = {
    "<rev>": "revision",
    "<range>": "revision",
    "<a>": "revision",
    "<rev>...": "revision",
    "<a>[..<b>]": "revision",
    "<timeline>": "timeline",
    "<timeline>...": "timeline",
    "<remote>": "remote",
    "<directory>": "directory",
    "<history>": "directory",
    "<file>": "file",
    "<path>": "file",
    "<path>...": "file",
    "<command>": "command",
    "<subcommand>": "subcommand",
}
"""The kind of value that a word of a usage line means; all other words are free text."""
FREE = "free"


@dataclass(frozen=True)
class Value:
    """The possible values at one place: a kind, or fixed words."""

    kind: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shape:
    """A command as a completion needs it."""

    name: str
    summary: str
    options: tuple[Option, ...]
    operands: tuple[Value, ...]
    program: str

    def value(self, option: Option) -> Value:
        return value_of(option, self.name)


def shape(name: str, place: str, summary: str, program: str) -> Shape:
    command = load(place)
    assert isinstance(command, Command)
    return Shape(name, summary, (*command.options, NO_COLOR), tuple(operands(command)), program)


def value_of(option: Option, command: str) -> Value:
    if option.choices:
        return Value("words", option.choices)
    if option.metavar == "<style>":
        return Value("words", DATES)
    if option.spellings[0] == "--agent":
        return Value("words", tuple(AGENTS))
    if command == "name" and option.metavar == "<name>":
        return Value("name")
    if option.metavar == "<class>,...":
        listed = option.help.rpartition(": ")[2].replace(" or ", ", ")
        return Value("words", tuple(listed.split(", ")))
    return Value(KINDS.get(option.metavar, FREE))


def operands(command: Command) -> Iterator[Value]:
    """Yield the kinds of operands in order, read from the usage; the last one may be repeated."""
    usage = command.usage.split(" [-- ")[0].split(" -- ")[0]
    words = [each.metavar.split("|") for each in command.arguments if each.metavar and "|" in each.metavar]
    if words and all(re.fullmatch(r"\w+", word) for word in words[0]):
        yield Value("words", tuple(words[0]))
        return
    usage = re.sub(r"\[-[^\]]*\](?:\.\.\.)?|-\w <[^>]*>", "", usage.partition(" | ")[0])
    for word in usage.split()[2:]:
        if "<options>" not in word and "<" in word:
            bare = word.strip("[]") if not word.startswith("[<a>[") else "<a>"
            yield Value(KINDS.get(bare, FREE))


def shapes() -> dict[str, list[Shape]]:
    """Return each program with its subcommands; the program itself comes first."""
    found = {program: [shape("", place, SUMMARIES[program], program)] for program, place in PROGRAMS.items()}
    found["git-envlog"] += [
        shape(name, sub.place, sub.summary, "git-envlog") for name, sub in SUBCOMMANDS.items()
    ]
    return found


def longest(option: Option) -> str:
    return next((one for one in option.spellings if one.startswith("--")), option.spellings[0])


def bare(option: Option) -> bool:
    """Return whether the value is optional, and given with `=` only."""
    return not option.is_flag and not option.takes_next


def header(program: str) -> str:
    return f"{SUMMARIES[program]}; made by completions/build.py: do not edit"
