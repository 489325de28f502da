"""Lists of what is built, read from the programs: commands, options, settings, statuses, verbs."""

from __future__ import annotations

import ast
import inspect
import re

from git_envhist import EnvHistory, errors
from git_envhist.cli.command import QUIET, Command
from git_envhist.cli.parser import Option
from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, load
from tests.rules.source import sources

CONFIG_KEY = re.compile(r"envhist\.[a-zA-Z][a-zA-Z.]*")


def commands() -> dict[str, Command]:
    """Return every command by the words that call it: `envlog`, `envlog capture`."""
    found: dict[str, Command] = {}
    for program, place in PROGRAMS.items():
        found[program.removeprefix("git-")] = load(place)
    for word, subcommand in SUBCOMMANDS.items():
        found[f"envlog {word}"] = load(subcommand.place)
    return found


def options() -> set[str]:
    """Return every option as it is written in the map.

    An option that all commands have is listed once, as `every --json`; so is one that all changing commands have, as
    `every --quiet`.
    """
    by_command = {
        words: {_spelling(option) for option in command.options if option is not QUIET}
        for words, command in commands().items()
    }
    common = set.intersection(*by_command.values())
    own = {f"{words} {option}" for words, found in by_command.items() for option in found - common}
    return own | {f"every {option}" for option in (*common, _spelling(QUIET))}


def _spelling(option: Option) -> str:
    return next((one for one in option.spellings if one.startswith("--")), option.spellings[0])


def config_keys() -> set[str]:
    """Return every key of git's configuration that the source names."""
    found = set()
    for source in sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if CONFIG_KEY.fullmatch(node.value) else set()
    return {f"config {key.rstrip('.')}" for key in found}


def statuses() -> set[str]:
    """Return every exit status of an error."""
    kinds = [
        kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
    ]
    return {f"status {kind.exit_code}" for kind in kinds if issubclass(kind, errors.EnvhistError)}


def verbs() -> set[str]:
    """Return the public methods of the library's one class."""
    return {
        f"python {name}" for name, _ in inspect.getmembers(EnvHistory, callable) if not name.startswith("_")
    }


def built() -> set[str]:
    """Return the ids of everything that the map must contain."""
    return set(commands()) | options() | config_keys() | statuses() | verbs()
