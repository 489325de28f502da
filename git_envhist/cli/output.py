"""Standard output, the pager and colours, as in git.

`Output.write` escapes control characters in every text and then inserts the program's own colours. Output for programs
(`exact`) is unchanged; contents of files (`content`) are escaped on a terminal only. If the reader closes the pipe
(`git envlog | head`, `q` in the pager), `OutputClosed` ends the program silently. `choose_palette` decides about
colours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from git_envhist.cli.terminal import (
    ASCII_SYMBOLS,
    MARK,
    as_bytes,
    insert_colours,
    mark_colour,
    terminal_columns,
)
from git_envhist.errors import EnvhistError
from git_envhist.git.process import SAFE_GIT, run_to_end
from git_envhist.lazy import dataclass

# Colours: `--color` first, then NO_COLOR and FORCE_COLOR, then `color.envhist` and `color.ui`, which git itself
# reads.

Config = Iterable[tuple[str, str | None]]

DECIDING = frozenset(("color.envhist", "color.ui"))
RESET = f"{MARK}[m"
DEFAULTS = {
    "id": "\x1b[33m",
    "time": "",
    "pass": "\x1b[32m",
    "fail": "\x1b[31m",
    "error": "\x1b[35m",
    "none": "\x1b[2m",
    "intent": "",
    "name": "\x1b[1;36m",
    "story": "\x1b[2m",
    "added": "\x1b[32m",
    "removed": "\x1b[31m",
    "modified": "\x1b[36m",
    "heading": "\x1b[1m",
}


@dataclass(frozen=True, slots=True)
class Palette:
    """The colour of each kind of word; an empty palette changes nothing."""

    colours: Mapping[str, str]

    def paint(self, slot: str, text: str) -> str:
        colour = mark_colour(self.colours.get(slot, ""))
        return f"{colour}{text}{RESET}" if colour and text else text

    @property
    def coloured(self) -> bool:
        return bool(self.colours)


PLAIN = Palette({})


def wants_colour(
    when: str | None, environ: Mapping[str, str], terminal: bool, configured: Callable[[bool], bool]
) -> bool:
    """Return whether to use colour, from `--color`, the environment, the terminal and the configuration."""
    if when in ("always", "never"):
        return when == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") != "0":
        return True
    terminal = terminal and environ.get("TERM", "dumb") != "dumb"
    return terminal if when == "auto" else configured(terminal)


def git_wants_colour(terminal: bool) -> bool:
    """Return git's value of `color.envhist` and `color.ui`."""
    answer = run_to_end(
        [*SAFE_GIT, "config", "--get-colorbool", "color.envhist", "true" if terminal else "false"],
        os.environb,
    )
    return answer.status == 0 and answer.out.strip() == b"true"


def _never_without_terminal(terminal: bool) -> bool:
    # Without configuration git's answer is "auto".
    return terminal and git_wants_colour(terminal)


def choose_palette(when: str | None, *, terminal: bool, config: Config | None = None) -> Palette:
    """Return the palette of this run: the defaults, changed by `color.envhist.<slot>`, or an empty one.

    `config` is git's configuration if it is known: git is then asked only if the configuration sets a colour key.
    """
    # With `git -p` the other end of the pipe is git's own pager, which shows colours.
    shown = terminal or os.environ.get("GIT_PAGER_IN_USE") == "true"
    is_unset = config is not None and DECIDING.isdisjoint(key for key, _ in config)
    if not wants_colour(when, os.environ, shown, _never_without_terminal if is_unset else git_wants_colour):
        return PLAIN
    return Palette({**DEFAULTS, **_configured_colours()})


def _configured_colours() -> dict[str, str]:
    listed = run_to_end(
        [*SAFE_GIT, "config", "--name-only", "--get-regexp", r"^color\.envhist\."], os.environb
    )
    slots = {os.fsdecode(line).rsplit(".", 1)[1] for line in listed.out.splitlines()}
    return {slot: _ask_colour(slot) for slot in sorted(slots & DEFAULTS.keys())}


def _ask_colour(slot: str) -> str:
    answer = run_to_end([*SAFE_GIT, "config", "--get-color", f"color.envhist.{slot}", ""], os.environb)
    return answer.out.decode("ascii", "replace")


STDOUT = 1
STDERR = 2
OUTPUT_LOST_STATUS = 5
"""Exit status if something was changed, but the output could not be written."""
# Characters that make git run its pager with the shell; other commands are run directly, which saves a process.
SHELL_CHARACTERS = frozenset("|&;<>()$`\\\"' \t\n*?[#~=%")


class OutputClosed(Exception):
    """The reader has closed the output."""


class OutputFailed(EnvhistError):
    """The output could not be written; the message names what was changed already."""

    code = "output"
    usual_hint = "free some space there, or write the output to another file"

    def __init__(self, reason: str, done: str | None = None) -> None:
        super().__init__(f"{done + ', but ' if done else ''}cannot write the output: {reason}")
        if done:
            self.exit_code = OUTPUT_LOST_STATUS


class Output:
    """Standard output, written in large blocks."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._size = 0
        self._pager: int | None = None
        self.plain = False
        """True to write symbols as ASCII letters."""
        self.quiet = False
        """True to print nothing."""
        self.done: str | None = None
        """The changes made so far, for the error message if the output cannot be written."""

    @property
    def terminal(self) -> bool:
        return self._pager is not None or os.isatty(STDOUT)

    def write(self, text: str | bytes) -> None:
        """Write text for people; only newlines, tabs and the program's colours remain as control characters."""
        if self.plain and isinstance(text, str):
            text = text.translate(ASCII_SYMBOLS)
        self._write(as_bytes(text))

    def content(self, data: bytes) -> None:
        """Write contents of files or lists of paths: exact for programs, escaped on a terminal."""
        self._write(as_bytes(data) if self.terminal else insert_colours(data))

    def exact(self, data: str | bytes) -> None:
        """Write output for programs: JSON, templates, lists that end with NUL."""
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "backslashreplace")
        self._write(insert_colours(raw))

    def _write(self, raw: bytes) -> None:
        if self.quiet:
            return
        self._waiting.append(raw)
        self._size += len(raw)
        if self._size > 1 << 16:
            self.flush()

    @property
    def columns(self) -> int | None:
        """The width of the terminal; None if the output does not go to a terminal."""
        return terminal_columns(STDERR) if self.terminal else None

    def line(self, text: str = "") -> None:
        self.write(text + "\n")

    def prose(self, text: str) -> None:
        """Write lines for people, wrapped between words on a terminal."""
        columns = self.columns
        for line in text.split("\n"):
            if columns is None or (len(line) <= columns and line.isascii()):
                self.line(line)
                continue
            from git_envhist.cli.terminal import wrapped  # loaded late: most lines are short

            for piece in wrapped(line, columns):
                self.line(piece)

    def flush(self) -> None:
        view = memoryview(b"".join(self._waiting))
        self._waiting, self._size = [], 0
        try:
            while view:
                view = view[os.write(STDOUT, view) :]
        except BrokenPipeError as gone:
            raise OutputClosed from gone
        except OSError as failure:
            raise OutputFailed(failure.strerror or str(failure), self.done) from failure

    def page(self) -> None:
        """Send further output through the user's pager, if git would."""
        if self._pager is None and os.isatty(STDOUT) and "GIT_PAGER_IN_USE" not in os.environ:
            command = ask_pager()
            if command:
                self._pager = start_pager(command)
                os.environ["GIT_PAGER_IN_USE"] = "true"

    def close(self) -> None:
        """Write the rest and wait until the pager ends."""
        try:
            self.flush()
        finally:
            if self._pager is not None:
                pager, self._pager = self._pager, None
                os.close(STDOUT)
                _wait_for(pager)
                os.open(os.devnull, os.O_WRONLY)


def ask_pager() -> str | None:
    """Return the pager that git would use; None if there is none."""
    answer = run_to_end([*SAFE_GIT, "var", "GIT_PAGER"], os.environb)
    command = os.fsdecode(answer.out).strip()
    return None if answer.status != 0 or command in ("", "cat") else command


def pager_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the pager, with git's defaults for less and lv."""
    return {"LESS": "FRX", "LV": "-c", **environ}


def pager_words(command: str) -> list[str]:
    return ["/bin/sh", "-c", command] if SHELL_CHARACTERS & set(command) else [command]


def start_pager(command: str) -> int | None:
    """Start the pager in front of standard output; return None if it cannot be started."""
    words = pager_words(command)
    reading, writing = os.pipe()
    try:
        child = os.posix_spawnp(
            words[0], words, pager_environment(os.environ), file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)]
        )
    except OSError as failure:
        from git_envhist.cli.errors import warn  # loaded late: it needs this module

        warn(f"cannot run the pager '{command}': {failure.strerror}")
        return None
    else:
        os.dup2(writing, STDOUT)
        return child
    finally:
        os.close(reading)
        os.close(writing)


def _wait_for(child: int) -> None:
    while True:
        try:
            os.waitpid(child, 0)
            return
        except KeyboardInterrupt:
            # As in git, Ctrl-C belongs to the pager while it runs.
            continue
        except ChildProcessError:
            return
