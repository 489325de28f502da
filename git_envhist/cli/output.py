"""Standard output, and the pager in front of it, as git has them.

Every text for people is spelled out here, after which our own colours are put in: no field that a command prints can
bring a control character along. What programs read (`exact`) is not changed, nor is the content of files (`content`)
unless it goes to a terminal.

A reader that goes away (`git envlog | head`, `q` in the pager) is no failure: it becomes `OutputClosed`, which ends
the program quietly. Any other broken pipe keeps its meaning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from git_envhist.cli.terminal import MARK, SPELLED_PLAINLY, as_bytes, coloured_only, marked, terminal_columns
from git_envhist.errors import EnvhistError
from git_envhist.git.process import SAFE_GIT, spawn
from git_envhist.lazy import dataclass

# Whether to colour, decided as git does it, and with which colours.
#
# `--color` wins; then NO_COLOR and FORCE_COLOR; then `color.envhist` and `color.ui`, which git itself reads and joins
# with whether there is a terminal that can show it.

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
    """The colour of each kind of word; an empty palette leaves texts as they are."""

    colours: Mapping[str, str]

    def paint(self, slot: str, text: str) -> str:
        colour = marked(self.colours.get(slot, ""))
        return f"{colour}{text}{RESET}" if colour and text else text

    @property
    def coloured(self) -> bool:
        return bool(self.colours)


PLAIN = Palette({})


def wants_colour(
    when: str | None, environ: Mapping[str, str], terminal: bool, configured: Callable[[bool], bool]
) -> bool:
    """The decision, from the word of `--color`, the environment, the terminal and what is configured."""
    if when in ("always", "never"):
        return when == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") != "0":
        return True
    terminal = terminal and environ.get("TERM", "dumb") != "dumb"
    return terminal if when == "auto" else configured(terminal)


def ask_git(terminal: bool) -> bool:
    """What `color.envhist` and `color.ui` say, in git's own reading."""
    answer = spawn(
        [*SAFE_GIT, "config", "--get-colorbool", "color.envhist", "true" if terminal else "false"],
        os.environb,
    )
    return answer.status == 0 and answer.out.strip() == b"true"


def _never_without_terminal(terminal: bool) -> bool:
    # Where nothing is configured, git's answer is "auto".
    return terminal and ask_git(terminal)


def choose_palette(when: str | None, *, terminal: bool, config: Config | None = None) -> Palette:
    """The palette for this run: the defaults under what `color.envhist.<slot>` says, or none at all.

    `config` is what git's configuration says, where that is known: then git is asked only if it has a say.
    """
    # With `git -p` the other end of the pipe is git's own pager, which shows colours.
    shown = terminal or os.environ.get("GIT_PAGER_IN_USE") == "true"
    says_nothing = config is not None and DECIDING.isdisjoint(key for key, _ in config)
    if not wants_colour(when, os.environ, shown, _never_without_terminal if says_nothing else ask_git):
        return PLAIN
    return Palette({**DEFAULTS, **_configured_colours()})


def _configured_colours() -> dict[str, str]:
    listed = spawn([*SAFE_GIT, "config", "--name-only", "--get-regexp", r"^color\.envhist\."], os.environb)
    slots = {os.fsdecode(line).rsplit(".", 1)[1] for line in listed.out.splitlines()}
    return {slot: _ask_colour(slot) for slot in sorted(slots & DEFAULTS.keys())}


def _ask_colour(slot: str) -> str:
    answer = spawn([*SAFE_GIT, "config", "--get-color", f"color.envhist.{slot}", ""], os.environb)
    return answer.out.decode("ascii", "replace")


STDOUT = 1
STDERR = 2
DONE_UNTOLD = 5
"""As of whatever is done, though not all is as it should be."""
# Characters that make git run its pager by the shell; any other command is run directly, which is one process less.
SHELL_CHARACTERS = frozenset("|&;<>()$`\\\"' \t\n*?[#~=%")


class OutputClosed(Exception):
    """Nobody reads the answer any more."""


class OutputFailed(EnvhistError):
    """The answer could not be written; `result_text` says what is done all the same."""

    code = "output"
    usual_hint = "free some space there, or write the output to another file"

    def __init__(self, reason: str, done: str | None = None) -> None:
        super().__init__(f"{done + ', but ' if done else ''}cannot write the output: {reason}")
        if done:
            self.exit_code = DONE_UNTOLD


class Output:
    """Standard output, written in large pieces."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._size = 0
        self._pager: int | None = None
        self.plain = False
        """Whether our own symbols are spelled with plain letters."""
        self.quiet = False
        """Whether nothing is to be said."""
        self.done: str | None = None
        """What was changed already, for whoever cannot be given the answer."""

    @property
    def terminal(self) -> bool:
        return self._pager is not None or os.isatty(STDOUT)

    def write(self, text: str | bytes) -> None:
        """Write text for people, without any control character but newlines, tabs and our colours."""
        if self.plain and isinstance(text, str):
            text = text.translate(SPELLED_PLAINLY)
        self._write(as_bytes(text))

    def content(self, data: bytes) -> None:
        """Write the content of files or a list of paths: exact for programs, spelled out on a terminal."""
        self._write(as_bytes(data) if self.terminal else coloured_only(data))

    def exact(self, data: str | bytes) -> None:
        """Write what is for programs alone: JSON, templates, lists that end with NUL."""
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "backslashreplace")
        self._write(coloured_only(raw))

    def _write(self, raw: bytes) -> None:
        if self.quiet:
            return
        self._waiting.append(raw)
        self._size += len(raw)
        if self._size > 1 << 16:
            self.flush()

    @property
    def columns(self) -> int | None:
        """The width to keep to; None where the answer does not go to a terminal."""
        return terminal_columns(STDERR) if self.terminal else None

    def line(self, text: str = "") -> None:
        self.write(text + "\n")

    def prose(self, text: str) -> None:
        """Lines for people: on a terminal they are broken between words where they are too long."""
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
        """Send what follows through the user's pager, if git would."""
        if self._pager is None and os.isatty(STDOUT) and "GIT_PAGER_IN_USE" not in os.environ:
            command = ask_pager()
            if command:
                self._pager = start_pager(command)
                os.environ["GIT_PAGER_IN_USE"] = "true"

    def close(self) -> None:
        """Write what is left and wait until the pager's reader is done."""
        try:
            self.flush()
        finally:
            if self._pager is not None:
                pager, self._pager = self._pager, None
                os.close(STDOUT)
                _wait_for(pager)
                os.open(os.devnull, os.O_WRONLY)


def ask_pager() -> str | None:
    """The pager that git would use here; None where that is no pager."""
    answer = spawn([*SAFE_GIT, "var", "GIT_PAGER"], os.environb)
    command = os.fsdecode(answer.out).strip()
    return None if answer.status != 0 or command in ("", "cat") else command


def pager_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment a pager starts in: git's defaults for less and lv where the user has none."""
    return {"LESS": "FRX", "LV": "-c", **environ}


def pager_words(command: str) -> list[str]:
    return ["/bin/sh", "-c", command] if SHELL_CHARACTERS & set(command) else [command]


def start_pager(command: str) -> int | None:
    """Start the pager in front of standard output; None, and no pager, where it cannot be started."""
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
            # Ctrl-C belongs to the pager while it shows something; git waits for it likewise.
            continue
        except ChildProcessError:
            return
