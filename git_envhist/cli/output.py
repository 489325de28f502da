"""Standard output, and the pager in front of it, as git has them.

Every text for people is spelled out here, after which our own colours are put in: no field that a command prints can
bring a control character along. What programs read (`exact`) is not changed, nor is the content of files (`content`)
unless it goes to a terminal.

A reader that goes away (`git envlog | head`, `q` in the pager) is no failure: it becomes `OutputClosed`, which ends
the program quietly. Any other broken pipe keeps its meaning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.cli.terminal import SPELLED_PLAINLY, as_bytes, coloured_only, terminal_columns
from git_envhist.errors import EnvhistError
from git_envhist.store.git import SAFE_GIT, spawn

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
    usual_hint = "make room where the answer goes, or send it elsewhere"

    def __init__(self, reason: str, done: str | None = None) -> None:
        super().__init__(f"{done + ', but ' if done else ''}cannot write the answer: {reason}")
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
            from git_envhist.cli.wrapping import wrapped  # loaded late: most lines are short

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
        from git_envhist.cli.failure import warn  # loaded late: it needs this module

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
