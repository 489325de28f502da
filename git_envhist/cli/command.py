"""What all commands share: their common options, the session they run in, and how click's words become ours.

A command is a function from a `Session` and its own options to an exit status (None is 0), wrapped by `command`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from git_envhist.cli.argv import BARE
from git_envhist.cli.output import Output
from git_envhist.errors import EnvhistError, UsageError

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.colour import Palette

Run = Callable[..., int | None]
COLOUR_WORDS = ("always", "never", "auto")


class CannotEnter(EnvhistError):
    """The directory of `-C` is not one that can be entered."""

    code = "no-such-directory"


class Session:
    """One run of a command: where the answer goes, how it is to look, and the history it is about."""

    def __init__(
        self,
        program: str,
        paths: tuple[str, ...] | None,
        output: Output,
        *,
        paging: bool = True,
        colour: str | None = None,
        json: str | None = None,
    ) -> None:
        self.program = program
        self.paths = paths
        self.output = output
        self.paging = paging
        self.colour = colour
        self.json = json

    @cached_property
    def history(self) -> EnvHistory:
        """The history of the directory the program stands in."""
        from git_envhist.api import EnvHistory  # loaded late: -h and a slip of the pen need no history

        return EnvHistory.open(".", workers="fork")

    @cached_property
    def palette(self) -> Palette:
        from git_envhist.cli.colour import PLAIN, choose_palette  # loaded late: JSON needs no colour

        return PLAIN if self.json else choose_palette(self.colour, terminal=self.output.terminal)

    @cached_property
    def columns(self) -> int | None:
        """The width to keep to; None where the answer does not go to a terminal."""
        if not self.output.terminal:
            return None
        if os.environ.get("COLUMNS", "").isdecimal():
            return int(os.environ["COLUMNS"]) or None
        try:
            return os.get_terminal_size(2).columns or None
        except OSError:
            return 80

    def page(self) -> None:
        """Let the pager show what follows, unless the user wants none."""
        if self.paging:
            self.output.page()

    def line(self, text: str = "") -> None:
        self.output.line(text)

    def paint(self, slot: str, text: str) -> str:
        return self.palette.paint(slot, text)

    def print_json(self, value: object) -> None:
        """Print one object."""
        from git_envhist.cli.jsontext import dump  # loaded late: keeps envlog fast

        self.output.line(dump(value))

    def no_paths(self) -> None:
        """Refuse pathspecs where none make sense."""
        if self.paths:
            raise UsageError(f"no paths are expected here: '{self.paths[0]}'")


class EnvhistCommand(click.Command):
    """A click command that knows how its short help is to look, and which of its options take a value."""

    usage: str = ""
    counts: bool = False
    """Whether `-5` stands for `--max-count=5`."""

    @property
    def valued(self) -> frozenset[str]:
        """The spellings of the options whose value is the next word."""
        return frozenset(
            spelling
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag and not param.count
            for spelling in param.opts
            # The value of these may be left out, so it is given with `=` only.
            if spelling not in BARE
        )


def command(
    name: str, usage: str, *, counts: bool = False, json_lines: bool = False
) -> Callable[[Run], EnvhistCommand]:
    """Make a function a command: it is called with the session and its options by name."""

    def wrap(run: Run) -> EnvhistCommand:
        @click.pass_context
        def enter(context: click.Context, /, **values: Any) -> int:
            return run(_session(context, values), **values) or 0

        params = list(reversed(getattr(run, "__click_params__", [])))
        made = EnvhistCommand(
            name,
            callback=enter,
            params=[*params, *_common_options(json_lines)],
            help=run.__doc__,
            add_help_option=False,
        )
        made.usage, made.counts = usage, counts
        return made

    return wrap


def _common_options(json_lines: bool) -> list[click.Option]:
    styles = ("array", "lines") if json_lines else ("array",)
    return [
        click.Option(
            ["--json", "json_style"], metavar="[=lines]" if json_lines else "", type=click.Choice(styles),
            help="the answer as JSON" + (", one object a line with =lines" if json_lines else ""),
        ),
        click.Option(
            ["--color", "colour"], metavar="[=<when>]", type=click.Choice(COLOUR_WORDS),
            help="colour: always, never or auto (--no-color: never)",
        ),
        click.Option(["-P", "--no-pager", "no_pager"], is_flag=True, help="do not use the pager"),
        click.Option(
            ["-C", "directories"], metavar="<directory>", multiple=True, help="run as if started there; repeatable"
        ),
        click.Option(
            ["-h", "short_help"], is_flag=True, is_eager=True, expose_value=False, callback=_print_help,
            help="this short help",
        ),
        click.Option(
            ["--help", "long_help"], is_flag=True, is_eager=True, expose_value=False, callback=_open_page,
            help="the man page",
        ),
    ]  # fmt: skip


def _session(context: click.Context, values: dict[str, Any]) -> Session:
    program, paths, output = context.obj
    for directory in values.pop("directories"):
        enter_directory(directory)
    return Session(
        program,
        paths,
        output,
        paging=not values.pop("no_pager"),
        colour=values.pop("colour"),
        json=values.pop("json_style"),
    )


def enter_directory(directory: str) -> None:
    """Go there, as `git -C` does; an empty name is here."""
    try:
        os.chdir(directory or ".")
    except OSError as failure:
        raise CannotEnter(f"cannot change to '{directory}': {failure.strerror}") from failure


def _print_help(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from git_envhist.cli.helptext import short_help  # loaded late: only -h needs it

        program, _, output = context.obj
        output.write(short_help(context.command, program))
        context.exit(0)


def _open_page(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from git_envhist.cli.helptext import short_help, show_page  # loaded late: only --help needs it

        program, _, output = context.obj
        if not show_page(program, output):
            output.write(short_help(context.command, program))
        context.exit(0)


def usage_error(failure: click.UsageError) -> UsageError:
    """click's complaint in the words of this project."""
    if isinstance(failure, click.NoSuchOption):
        near = ", ".join(f"'{option}'" for option in failure.possibilities or ())
        return UsageError(
            f"no such option '{failure.option_name}'",
            hint=f"did you mean {near}?" if near else "-h lists the options",
        )
    message = failure.format_message().strip().rstrip(".")
    return UsageError(message[:1].lower() + message[1:], hint="-h lists the options")
