"""Where a command line is not plainly right, click reads it: its checks, its complaints in our words, and the help."""

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

EXTRA = re.compile(r"extra arguments? \(([^ )]*)")
"""click's words for what stands where nothing is expected."""
OF_WORDS = {"capture": "before the upgrade", "effect": "deployed to staging"}
"""What takes words of a person, which are easily left without quotes."""
Tell = Callable[[Command, str, Output], None]


def read_by_click(
    command: Command, words: Sequence[str], program: str, output: Output
) -> dict[str, Any] | None:
    """The values of the options by their names; None where all that was asked for has been told."""
    reader = click.Command(
        command.name,
        params=[
            *map(click_argument, command.arguments),
            *(click_option(option, command, program, output) for option in command.options),
        ],
        add_help_option=False,
    )
    try:
        # Not by click's own main(), which has words of its own for Ctrl-C.
        with reader.make_context(command.name, list(words)) as context:
            return context.params
    except click.UsageError as failure:
        _refuse_another_tools_word(command, words)
        raise usage_error(failure, command, words) from failure
    except click.exceptions.Exit:
        return None


def _refuse_another_tools_word(command: Command, words: Sequence[str]) -> None:
    """`git envlog commit -m x`: the option is none because the word before it is no subcommand."""
    from git_envhist.cli.main import unknown_subcommand  # loaded late: likewise
    from git_envhist.cli.parser import first_operand  # loaded late: only a slip of the pen needs it
    from git_envhist.cli.subcommands import did_you_mean  # loaded late: likewise

    at = first_operand(words, command.valued) if command.name == "envlog" else None
    if at is not None and did_you_mean(words[at]) is not None:
        raise unknown_subcommand(words[at])


def click_argument(argument: Argument) -> click.Argument:
    """The same for click."""
    if argument.many:
        return click.Argument([argument.name], nargs=-1)
    return click.Argument([argument.name], required=False, default=argument.default, metavar=argument.metavar)


def click_option(option: Option, command: Command, program: str, output: Output) -> click.Option:
    """The same for click."""
    words = [*option.spellings, option.name]
    if option.prints_and_exits:
        return click.Option(
            words,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_teller(TELLERS[option.name], command, program, output),
        )
    kind = click.Choice(option.choices) if option.choices else click.INT if option.number else None
    return click.Option(
        words,
        metavar=option.metavar or None,
        # Not False: click takes that for a flag which may have a value, too.
        is_flag=option.is_flag or None,
        multiple=option.multiple,
        type=click.BOOL if option.is_flag else kind,
    )


def _teller(
    tell: Tell, command: Command, program: str, output: Output
) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(context: click.Context, option: click.Parameter, wanted: bool) -> None:
        if wanted:
            tell(command, program, output)
            context.exit(0)

    return callback


def _tell_help(command: Command, program: str, output: Output) -> None:
    output.prose(short_help(command, program).rstrip("\n"))


def _tell_all(command: Command, program: str, output: Output) -> None:
    if not show_page(program, output, command.name if command.name in SUBCOMMANDS else None):
        _tell_help(command, program, output)


def _tell_version(command: Command, program: str, output: Output) -> None:
    output.line(f"git-envhist {__version__}")


TELLERS: dict[str, Tell] = {"short_help": _tell_help, "long_help": _tell_all, "version": _tell_version}


def usage_error(
    failure: click.UsageError, command: Command | None = None, words: Sequence[str] = ()
) -> UsageError:
    """click's complaint in the words of this project."""
    message = failure.format_message().strip().rstrip(".")
    lists = f"'{called(command)} -h' lists the options" if command is not None else "-h lists the options"
    if (extra := EXTRA.search(message)) is not None:
        return UsageError(f"one word too many: '{extra[1]}'", hint=_hint_at_words(command, words) or lists)
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
    """What the option is to be given, as the short help has it."""
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
    """Those that were probably meant: the dashes that all of them begin with make none alike."""
    from difflib import get_close_matches  # loaded late: only a slip of the pen needs it

    bare = {other.lstrip("-"): other for other in others}
    cut_off = [other for word, other in bare.items() if option[2:] and word.startswith(option[2:])]
    if cut_off:
        return cut_off
    return [bare[one] for one in get_close_matches(option.lstrip("-"), bare, cutoff=0.7)]


def called(command: Command) -> str:
    """What a person types for it."""
    return f"git {command.name}" if command.name.startswith("env") else f"git envlog {command.name}"


def _hint_at_words(command: Command | None, words: Sequence[str]) -> str | None:
    """What the words may have been meant as: a path where git would take one, or an intent that was not quoted."""
    if command is None:
        return None
    if "[-- <path" in command.usage:
        hint = f"paths stand behind '--': {command.usage.partition('[-- ')[0].strip()} -- <path>"
        return hint.replace(" [<options>]", "")
    if command.name in OF_WORDS:
        return f"several words stand in quotes: {called(command)} '{OF_WORDS[command.name]}'"
    return f"usage: {command.usage}"


# Options that fingers know from git or another tool, and what is typed here for that.

EVERYTHING = "everything is taken, tracked or not: git envlog capture 'why'"
NO_INDEX = "moments are compared, and there is no index among them: git envdiff"
FIRST = "the moment stands first: git envrestore <rev> -- <path>"
LIKE_SHOW = "git envlog -1 {option} <rev>"
MEANT = {
    "envlog": {
        "--limit": "git envlog -n 3",
        "--count": "git envlog -n 3",
        "--author": "git envlog --full tells whose each is, --grep searches intents, -S contents",
        "--first-parent": "timelines do not branch: git envlog",
        "--verbose": "git envlog --full has all of each, --stat what it changed",
        "-v": "git envlog --full has all of each, --stat what it changed",
    },
    "show": dict.fromkeys(
        ("--stat", "-p", "-u", "--patch", "--name-only", "--name-status", "--oneline", "--format"), LIKE_SHOW
    ),
    "capture": {
        "-a": EVERYTHING,
        "-A": EVERYTHING,
        "--all": EVERYTHING,
        "--amend": "a moment stays as it is: git envlog note -m <text> adds to it, git envlog drop forgets it",
        "--tag": "git envlog capture --name <name>",
    },
    "name": dict.fromkeys(("-l", "--list"), "git envlog name: all names"),
    "export": dict.fromkeys(("-o", "--output"), "the file stands first: git envlog export <file> [<rev>...]"),
    "envdiff": {"--staged": NO_INDEX, "--cached": NO_INDEX},
    "envrestore": {
        "--hard": "git envrestore @: all of the newest moment; what is here is saved first",
        "--source": FIRST,
        "-s": FIRST,
        "--worktree": "what stands here is what comes back: git envrestore <rev> -- <path>",
        "-W": "what stands here is what comes back: git envrestore <rev> -- <path>",
        "--patch": "files come back whole: git envdiff -p <rev> -- <path> shows what would",
        "-p": "files come back whole: git envdiff -p <rev> -- <path> shows what would",
        "--staged": "git's index stays as it is: git envrestore <rev> -- <path>",
        "--list": "git envrestore alone shows the likeliest moments, git envlog all of them",
        "--yes": "nothing is asked: what is here is saved first, and --undo brings it back",
        "-y": "nothing is asked: what is here is saved first, and --undo brings it back",
    },
}


def hint_for_foreign_option(command: str, option: str) -> str | None:
    """The hint for an option that the command does not have, if it is one of these."""
    found = MEANT.get(command, {}).get(option)
    return found and found.format(option=option)
