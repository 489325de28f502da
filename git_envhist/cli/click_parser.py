"""Parse a command line with click when it is not certainly valid, and rewrite click's errors.

`parser.read_plainly` handles valid command lines without click. This module converts the same declarations to click's,
prints `-h`, `--help` and `--version`, and turns a usage error of click into a `UsageError` with a hint: the option that
was probably meant, or the command that does here what an option of another tool does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from git_envhist._version import __version__
from git_envhist.cli.command import Command
from git_envhist.cli.output import Output
from git_envhist.cli.parser import Argument, Option
from git_envhist.cli.subcommands import SUBCOMMANDS, short_help, show_page
from git_envhist.errors import UsageError

EXTRA = re.compile(r"extra (?:argument \((?P<only>.*)\)|arguments \((?P<first>[^ )]*))")
"""Matches click's message about an unexpected argument."""
TEXT_EXAMPLES = {"capture": "before the upgrade", "effect": "deployed to staging"}
"""Commands that take free text, with an example; the quotes around it are often forgotten."""
Printer = Callable[[Command, str, Output], None]


def read_by_click(
    command: Command, words: Sequence[str], program: str, output: Output
) -> dict[str, Any] | None:
    """Return the values of the options by name; None if help or the version was printed."""
    reader = click.Command(
        command.name,
        params=[
            *map(click_argument, command.arguments),
            *(click_option(option, command, program, output) for option in command.options),
        ],
        add_help_option=False,
    )
    try:
        # Not click's main(): it handles Ctrl-C in its own way.
        with reader.make_context(command.name, list(words)) as context:
            return context.params
    except click.UsageError as failure:
        _refuse_foreign_subcommand(command, words)
        raise usage_error(failure, command, words) from failure
    except click.exceptions.Exit:
        return None


def _refuse_foreign_subcommand(command: Command, words: Sequence[str]) -> None:
    """Raise the error for an unknown subcommand in `git envlog commit -m x`, instead of one for its option."""
    from git_envhist.cli.main import unknown_subcommand  # loaded late: only a usage error needs it
    from git_envhist.cli.parser import first_operand  # loaded late: only a usage error needs it
    from git_envhist.cli.subcommands import did_you_mean  # loaded late: only a usage error needs it

    at = first_operand(words, command.valued) if command.name == "envlog" else None
    if at is not None and did_you_mean(words[at]) is not None:
        raise unknown_subcommand(words[at])


def click_argument(argument: Argument) -> click.Argument:
    """Return the argument as a click argument."""
    if argument.many:
        return click.Argument([argument.name], nargs=-1)
    return click.Argument([argument.name], required=False, default=argument.default, metavar=argument.metavar)


def click_option(option: Option, command: Command, program: str, output: Output) -> click.Option:
    """Return the option as a click option."""
    words = [*option.spellings, option.name]
    if option.prints_and_exits:
        return click.Option(
            words,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_callback(PRINTERS[option.name], command, program, output),
        )
    kind = click.Choice(option.choices) if option.choices else click.INT if option.number else None
    return click.Option(
        words,
        metavar=option.metavar or None,
        # None, because click reads False as a flag with an optional value.
        is_flag=option.is_flag or None,
        multiple=option.multiple,
        type=click.BOOL if option.is_flag else kind,
    )


def _print_callback(
    print_text: Printer, command: Command, program: str, output: Output
) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(context: click.Context, option: click.Parameter, wanted: bool) -> None:
        if wanted:
            print_text(command, program, output)
            context.exit(0)

    return callback


def _print_help(command: Command, program: str, output: Output) -> None:
    output.prose(short_help(command, program, output.columns).rstrip("\n"))


def _print_manual(command: Command, program: str, output: Output) -> None:
    if not show_page(program, output, command.name if command.name in SUBCOMMANDS else None):
        _print_help(command, program, output)


def _print_version(command: Command, program: str, output: Output) -> None:
    output.line(f"git-envhist {__version__}")


PRINTERS: dict[str, Printer] = {
    "short_help": _print_help,
    "long_help": _print_manual,
    "version": _print_version,
}


def usage_error(
    failure: click.UsageError, command: Command | None = None, words: Sequence[str] = ()
) -> UsageError:
    """Return a click usage error as a UsageError with a hint."""
    message = failure.format_message().strip().rstrip(".")
    lists = (
        f"'{spelled_command(command)} -h' lists the options"
        if command is not None
        else "-h lists the options"
    )
    if (extra := EXTRA.search(message)) is not None:
        return UsageError(
            f"unexpected argument: '{extra['only'] or extra['first']}'",
            hint=_hint_at_words(command, words) or lists,
        )
    if isinstance(failure, click.NoSuchOption):
        return UsageError(
            f"no such option: '{failure.option_name}'", hint=_hint_at_option(failure, command) or lists
        )
    if isinstance(failure, click.BadOptionUsage) and "requires an argument" in message:
        lists = _hint_at_value(failure.option_name, command) or lists
    elif isinstance(failure, click.BadParameter) and failure.param is not None:
        lists = _hint_at_value(failure.param.opts[0], command) or lists
    return UsageError(message[:1].lower() + message[1:], hint=lists)


def _hint_at_value(spelling: str, command: Command | None) -> str | None:
    """Return the option with its value and help, as the short help prints it."""
    found = [one for one in command.options if spelling in one.spellings] if command is not None else []
    return f"{spelling} {found[0].metavar}: {found[0].help}" if found else None


def _hint_at_option(failure: click.NoSuchOption, command: Command | None) -> str | None:

    option = failure.option_name
    if command is not None and (meant := hint_for_foreign_option(command.name, option)) is not None:
        return meant
    others = [each for one in command.options for each in one.spellings] if command is not None else []
    near = ", ".join(f"'{each}'" for each in _alike(option, others or failure.possibilities or ()))
    return f"did you mean {near}?" if near else None


def _alike(option: str, others: Sequence[str]) -> list[str]:
    """Return the options that were probably meant, compared without leading dashes."""
    from difflib import get_close_matches  # loaded late: only a usage error needs it

    bare = {other.lstrip("-"): other for other in others}
    cut_off = [other for word, other in bare.items() if option[2:] and word.startswith(option[2:])]
    if cut_off:
        return cut_off
    return [bare[one] for one in get_close_matches(option.lstrip("-"), bare, cutoff=0.7)]


def spelled_command(command: Command) -> str:
    """Return the command as a user types it."""
    return f"git {command.name}" if command.name.startswith("env") else f"git envlog {command.name}"


def _hint_at_words(command: Command | None, words: Sequence[str]) -> str | None:
    """Return a hint for an unexpected argument: paths need `--`, an intent needs quotes."""
    if command is None:
        return None
    if "[-- <path" in command.usage:
        hint = f"paths go after '--': {command.usage.partition('[-- ')[0].strip()} -- <path>"
        return hint.replace(" [<options>]", "")
    if command.name in TEXT_EXAMPLES:
        return f"quote several words: {spelled_command(command)} '{TEXT_EXAMPLES[command.name]}'"
    return f"usage: {command.usage}"


# Options of git and other tools, and the command that does the same here.

EVERYTHING = "a snapshot contains all files, tracked or not: git envlog capture '<intent>'"
NO_INDEX = "snapshots do not include git's index: git envdiff"
FIRST = "the snapshot comes first: git envrestore <rev> -- <path>"
LIKE_SHOW = "git envlog -1 {option} <rev>"
FOREIGN_OPTIONS = {
    "envlog": {
        "--limit": "git envlog -n 3",
        "--count": "git envlog -n 3",
        "--author": "git envlog --full prints the author, --grep searches intents, -S contents",
        "--first-parent": "a timeline does not branch: git envlog",
        "--verbose": "git envlog --full prints each in full, --stat what it changed",
        "-v": "git envlog --full prints each in full, --stat what it changed",
    },
    "show": dict.fromkeys(
        ("--stat", "-p", "-u", "--patch", "--name-only", "--name-status", "--oneline", "--format"), LIKE_SHOW
    ),
    "capture": {
        "-a": EVERYTHING,
        "-A": EVERYTHING,
        "--all": EVERYTHING,
        "--amend": "a snapshot never changes: git envlog note -m <text> adds a note, git envlog drop removes it",
        "--tag": "git envlog capture --name <name>",
    },
    "name": dict.fromkeys(("-l", "--list"), "git envlog name lists all names"),
    "export": dict.fromkeys(("-o", "--output"), "the file comes first: git envlog export <file> [<rev>...]"),
    "envdiff": {"--staged": NO_INDEX, "--cached": NO_INDEX},
    "envrestore": {
        "--hard": "git envrestore @ restores the newest snapshot; your files are saved first",
        "--source": FIRST,
        "-s": FIRST,
        "--worktree": "files of the working tree are restored: git envrestore <rev> -- <path>",
        "-W": "files of the working tree are restored: git envrestore <rev> -- <path>",
        "--patch": "whole files are restored: git envdiff -p <rev> -- <path> shows the changes",
        "-p": "whole files are restored: git envdiff -p <rev> -- <path> shows the changes",
        "--staged": "git's index is not changed: git envrestore <rev> -- <path>",
        "--list": "git envrestore lists likely snapshots, git envlog lists all",
        "--yes": "there is no question: your files are saved first, and --undo restores them",
        "-y": "there is no question: your files are saved first, and --undo restores them",
    },
}


def hint_for_foreign_option(command: str, option: str) -> str | None:
    """Return the hint for an option of another tool; None if it is not known."""
    found = FOREIGN_OPTIONS.get(command, {}).get(option)
    return found and found.format(option=option)
