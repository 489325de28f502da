"""Commands: their common options, the session that they run in, and how they are invoked.

A command is a function from a `Session` and its own options to an exit status (None is 0), wrapped by `command`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from git_envhist.cli import errors
from git_envhist.cli.output import Output
from git_envhist.cli.parser import Argument, Option, declarations_of, make_option, read_plainly
from git_envhist.cli.terminal import shows_symbols
from git_envhist.errors import EnvhistError, UsageError

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.output import Palette


Run = Callable[..., int | None]
COLOUR_WORDS = ("always", "never", "auto")


class CannotChangeDirectory(EnvhistError):
    """The directory of `-C` cannot be entered."""

    code = "no-such-directory"
    usual_hint = "-C takes an existing directory"


class Session:
    """One run of a command: the output, its style, and the history that it works on."""

    def __init__(
        self,
        program: str,
        paths: tuple[str, ...] | None,
        output: Output,
        *,
        paging: bool = True,
        colour: str | None = None,
        json: str | None = None,
        bare: bool = False,
    ) -> None:
        self.program = program
        self.paths = paths
        self.output = output
        self.paging = paging
        self.colour = colour
        self.json = json
        self.bare = bare
        """True if the command works in a bare repository."""
        output.plain = json is None and not shows_symbols(os.environ, terminal=output.terminal)

    @cached_property
    def history(self) -> EnvHistory:
        """The history of the current directory."""
        from git_envhist.api import EnvHistory  # loaded late: -h and a usage error need no history

        history = EnvHistory.open(".", workers="fork", bare=self.bare, one_command=True)
        history.waiting = report_waiting
        return history

    @cached_property
    def palette(self) -> Palette:
        from git_envhist.cli.output import PLAIN, choose_palette  # loaded late: JSON needs no colour

        if self.json:
            return PLAIN
        # An open history has read the configuration already.
        opened = self.__dict__.get("history")
        config = opened.repository.read_config() if opened is not None else None
        return choose_palette(self.colour, terminal=self.output.terminal, config=config)

    @cached_property
    def columns(self) -> int | None:
        """The width of the terminal; None if the output does not go to a terminal."""
        return self.output.columns

    def signed(self, text: str) -> str:
        """Return a text with ASCII minus signs if it does not go to a terminal."""
        from git_envhist.diff.summary import with_ascii_signs  # loaded late: most commands print no counts

        return with_ascii_signs(text) if self.columns is None else text

    def date_style(self, given: str | None = None) -> str | None:
        """Return the date style: that of `--date`, else of `log.date`, else None (each view has its own default)."""
        from git_envhist.cli.formats import date_style  # loaded late: JSON needs none

        configured = dict(self.history.repository.read_config()).get("log.date") if given is None else None
        return date_style(given, configured, terminal=self.output.terminal)

    def page(self) -> None:
        """Start the pager unless `--no-pager` is given."""
        if self.paging:
            self.output.page()

    def line(self, text: str = "") -> None:
        """Print a line for people, wrapped on a terminal."""
        if self.json:
            self.output.exact(text + "\n")
        else:
            self.output.prose(text)

    def verbatim(self, text: str) -> None:
        """Print text unchanged: it is meant to be copied, or was written by another program."""
        self.output.line(text)

    def paint(self, slot: str, text: str) -> str:
        return self.palette.paint(slot, text)

    def print_json(self, value: object) -> None:
        """Print one JSON object."""
        from git_envhist.cli.json_values import dump  # loaded late: keeps envlog fast

        self.output.exact(dump(value) + "\n")

    def warn_of_a_recovered_name(self) -> None:
        """Print that the name of the timeline had to be recovered, unless the command has printed it."""
        opened = self.__dict__.get("history")
        warning = opened.recovered_name if opened is not None else None
        if warning is not None and warning not in errors.warned:
            errors.warn(warning)

    def done(self, what: str) -> None:
        """Record what was changed, for the error message if the output cannot be written."""
        self.output.done = what

    def no_paths(self) -> None:
        """Raise UsageError if pathspecs are given."""
        if self.paths:
            raise UsageError(f"this command takes no paths: '{self.paths[0]}'")


class Command:
    """A command: its name, its options and arguments, and the function that runs it."""

    def __init__(
        self,
        name: str,
        usage: str,
        run: Run,
        *,
        counts: bool,
        json_lines: bool,
        writes: bool,
        bare: bool,
        ends_in_command: bool,
    ) -> None:
        self.name = name
        self.usage = usage
        self.help = "\n".join(map(str.strip, (run.__doc__ or "").strip().split("\n")))
        self.counts = counts
        """True if `-5` means `--max-count=5`."""
        self.ends_in_command = ends_in_command
        """True if the first operand starts the command line of another program, as after `nice` or `sudo`."""
        own = declarations_of(run)
        self.arguments = [each for each in own if isinstance(each, Argument)]
        common = [*([QUIET] if writes else []), *common_options(json_lines)]
        self.options = [*(each for each in own if isinstance(each, Option)), *common]
        self._run = run
        self._bare = bare

    @property
    def valued(self) -> frozenset[str]:
        """The spellings of the options whose value is the next word."""
        return frozenset(
            spelling for option in self.options if option.takes_next for spelling in option.spellings
        )

    def invoke(
        self, words: Sequence[str], program: str, paths: tuple[str, ...] | None, output: Output
    ) -> int:
        """Parse the words, run the command, and return the exit status."""
        values = read_plainly(words, self.options, self.arguments)
        if values is None:
            from git_envhist.cli.click_parser import read_by_click  # loaded late: keeps envlog fast

            values = read_by_click(self, words, program, output)
        return 0 if values is None else self._enter(values, program, paths, output)

    def _enter(
        self, values: dict[str, Any], program: str, paths: tuple[str, ...] | None, output: Output
    ) -> int:
        for directory in values.pop("directories"):
            enter_directory(directory)
        style = values.pop("json_style")
        if values.pop("hushed", False):
            errors.set_quiet()
            output.quiet = style is None
        session = Session(
            program,
            paths,
            output,
            paging=not values.pop("no_pager"),
            colour=values.pop("colour"),
            json=style,
            bare=self._bare,
        )
        errors.warned.clear()
        try:
            return self._run(session, **values) or 0
        finally:
            session.warn_of_a_recovered_name()


def command(
    name: str,
    usage: str,
    *,
    counts: bool = False,
    json_lines: bool = False,
    writes: bool = False,
    bare: bool = False,
    ends_in_command: bool = False,
) -> Callable[[Run], Command]:
    """Turn a function into a command, called with the session and its options by name.

    `writes`: it changes something and accepts `--quiet`. `bare`: it needs no working tree. `ends_in_command`: all
    words from the first operand on are the command line of another program.
    """
    return lambda run: Command(
        name,
        usage,
        run,
        counts=counts,
        json_lines=json_lines,
        writes=writes,
        bare=bare,
        ends_in_command=ends_in_command,
    )


QUIET = make_option("-q", "--quiet", "hushed", is_flag=True, help="print only warnings and errors")


def common_options(json_lines: bool) -> list[Option]:
    """Return the options of every command."""
    styles = ("array", "lines") if json_lines else ("array",)
    return [
        make_option(
            "--json", "json_style", metavar="[=lines]" if json_lines else "", choices=styles,
            help="print JSON" + ("; one object per line with =lines" if json_lines else ""),
        ),
        make_option(
            "--color", "colour", metavar="[=<when>]", choices=COLOUR_WORDS,
            help="colour: always, never or auto (--no-color: never)",
        ),
        make_option("-P", "--no-pager", is_flag=True, help="do not use the pager"),
        make_option(
            "-C", "directories", metavar="<directory>", multiple=True,
            help="run as if started in that directory; repeatable",
        ),
        make_option("-h", "short_help", is_flag=True, prints_and_exits=True, help="print this short help"),
        make_option("--help", "long_help", is_flag=True, prints_and_exits=True, help="open the man page"),
        make_option("--version", is_flag=True, prints_and_exits=True, help="print the version of this program"),
    ]  # fmt: skip


def report_waiting(operation: str) -> None:
    """Print which operation the program waits for."""
    from git_envhist.cli.errors import print_error_line  # loaded late: the program seldom waits

    print_error_line(f"waiting for {operation} of this repository to finish")


def enter_directory(directory: str) -> None:
    """Change the directory as `git -C` does; an empty name is the current directory."""
    try:
        os.chdir(directory or ".")
    except OSError as failure:
        raise CannotChangeDirectory(f"cannot change to '{directory}': {failure.strerror}") from failure
