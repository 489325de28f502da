"""Runs a program as a shell would, and keeps what it writes while that passes through.

Whoever sits at a terminal has one of their own inside: a pager, an editor, a prompt for a password work as they do
without us. Elsewhere what comes on standard output goes on there, and what comes on standard error there.
"""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from git_envhist.errors import EnvhistError, in_words
from git_envhist.history.timeline import subject
from git_envhist.model import CaptureResult, RunResult, Trigger
from git_envhist.secrets.masking import mask_text

if TYPE_CHECKING:
    from git_envhist.capture.pipeline import CaptureKeywords


OUT, ERR = 1, 2
PORTION = 1 << 16
MAX_IN_A_PIPE = 1 << 20
PAUSE_MS = 20
HEAD, TAIL = 1 << 20, 3 << 20
"""So much of the beginning and of the end of what a program writes is kept."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
BY_SIGNAL = 128
"""Above this a shell tells of a program that a signal ended."""
OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""The terminal sends these to the program as well."""
HANDED_ON = (signal.SIGTERM, signal.SIGHUP)

Take = Callable[[bytes], None]
Taken = Callable[[int, bytes], None]
"""Given where it came from, too."""


class HeadAndTail:
    """The beginning and the end of a text; what is between them, where it is long, is counted."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._room = head
        self._most = tail
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def take(self, data: bytes) -> None:
        room = self._room - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut seldom, so that a byte is not moved for every byte that comes.
        if len(self._tail) > 2 * self._most:
            self._cut()

    @property
    def text(self) -> bytes:
        if len(self._tail) > self._most:
            self._cut()
        gap = b"\n[%d bytes left out]\n" % self._left_out if self._left_out else b""
        return bytes(self._head + gap + self._tail)

    def _cut(self) -> None:
        over = len(self._tail) - self._most
        self._left_out += over
        del self._tail[:over]


def pass_through(words: Sequence[str], keep: Take, out: int = OUT) -> int:
    """Run a program to its end, as one with our terminal, directory and environment; its status as a shell tells it.

    `out`: where its standard output goes.
    """
    if out != OUT or not (os.isatty(0) and os.isatty(OUT)):
        return _by_pipes(words, keep, out)

    return run_on_terminal(words, keep)


def _by_pipes(words: Sequence[str], keep: Take, out: int) -> int:
    _flush()
    try:
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        return tell_not_started(words, error)
    assert child.stdout is not None
    assert child.stderr is not None
    targets = {child.stdout.fileno(): out, child.stderr.fileno(): ERR}

    def take(source: int, data: bytes) -> None:
        keep(data)
        write_all(targets[source], data)

    with child, handing_on(child.pid):
        copy_until_exit(child.pid, list(targets), take)
        return status_of(child.wait())


def run_quietly(words: Sequence[str], keep: Take, directory: str, environ: Mapping[str, str]) -> int:
    """Run a program without a terminal to its end and return its status; `keep` gets all of its output."""
    try:
        child = subprocess.Popen(
            words,
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except (OSError, ValueError) as error:
        # ValueError: a word contains a NUL, or half of a surrogate pair.
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise EnvhistError(f"cannot run '{words[0]}': {reason}") from error
    with child:
        assert child.stdout is not None
        copy_until_exit(child.pid, [child.stdout.fileno()], lambda _source, data: keep(data))
        return status_of(child.wait())


def tell_not_started(words: Sequence[str], error: OSError) -> int:
    """Say it as a shell does; the status it has for that."""
    with suppress(OSError):
        write_all(ERR, os.fsencode(f"{words[0]}: {(error.strerror or str(error)).lower()}\n"))
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def copy_until_exit(process: int, sources: Sequence[int], take: Taken, *, typed: int | None = None) -> None:
    """Take what comes until a process is over; what it left in the background is not waited for.

    `typed`: what is typed there is taken, too; what comes after the end is for whoever reads there next.
    """
    poll = select.poll()
    for source in sources if typed is None else (*sources, typed):
        poll.register(source, select.POLLIN)
    end = -1
    with suppress(OSError, AttributeError):
        end = os.pidfd_open(process)
        poll.register(end, select.POLLIN)
    try:
        while not _is_over(process):
            for source, _ in poll.poll(None if end >= 0 else PAUSE_MS):
                if source != end and not _take_some(source, take):
                    poll.unregister(source)
    finally:
        if end >= 0:
            os.close(end)
    for source in sources:
        _take_rest(source, take)


def _is_over(process: int) -> bool:
    # Not taken notice of: whoever waits for it learns how it ended.
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _take_some(source: int, take: Taken) -> int:
    """Take what is there, or wait for it; how much it was."""
    try:
        data = os.read(source, PORTION)
    except OSError:
        return 0  # the other end of a terminal is gone
    if data:
        take(source, data)
    return len(data)


def _take_rest(source: int, take: Taken) -> None:
    """What was written before the end; who goes on in the background may write for ever."""
    poll, taken = select.poll(), 0
    poll.register(source, select.POLLIN)
    while taken < MAX_IN_A_PIPE and poll.poll(0):
        some = _take_some(source, take)
        if not some:
            return
        taken += some


def write_all(target: int, data: bytes) -> None:
    """Write it; where nobody listens any more, that is no reason to end what runs."""
    view = memoryview(data)
    with suppress(BrokenPipeError):
        while view:
            try:
                view = view[os.write(target, view) :]
            except BlockingIOError:
                select.select([], [target], [])


@contextmanager
def handing_on(process: int) -> Iterator[None]:
    """What asks us to end is handed on to the program, and what it does about it is what happens."""

    def hand_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, number)

    before = {number: signal.signal(number, _ignore) for number in OF_THE_TERMINAL}
    before |= {number: signal.signal(number, hand_on) for number in HANDED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(_number: int, _frame: object) -> None:
    """A function, since the program would inherit it if it was ignored by the system."""


def status_of(code: int) -> int:
    """As a shell tells it."""
    return code if code >= 0 else BY_SIGNAL - code


def end_here(words: Sequence[str]) -> NoReturn:
    """In a copy of us: become the program."""
    try:
        os.execvp(words[0], list(words))
    except OSError as error:
        os._exit(tell_not_started(words, error))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


# A command between two moments: what was there before, what it wrote and how it ended, and what is there after it.

Capture = Callable[[str, "CaptureKeywords"], CaptureResult]
"""Takes a snapshot with this intent."""
Through = Callable[[Sequence[str], Take], int]
"""Runs a command and gives what it writes to whoever keeps it; its status."""
MAX_LENGTH = 1000
"""So much of a command line stands with the moment."""
OUTPUT = "output"
"""What the command wrote is kept under this name."""
NOT_CAPTURED = "what came after the command is not captured"


def run_with_snapshots(
    capture: Capture, words: Sequence[str], intent: str | None, verify: str | None, through: Through
) -> RunResult:
    """Capture, run a command, capture again; `through` runs it and gives its status.

    Nothing is run where the moment before it cannot be had: it is what the command may destroy. Whatever becomes of the
    moment after it, the command's status is the answer.
    """
    command = mask_text(shlex.join(words))[:MAX_LENGTH]
    intent = intent or command
    before = capture(f"before: {subject(intent)}", {"trigger": Trigger.RUN, "if_changed": True, "verify": ""})
    kept, started = HeadAndTail(), time.monotonic()
    status = through(words, kept.take)
    duration = round((time.monotonic() - started) * 1000)
    text = kept.text
    asked: CaptureKeywords = {
        "trigger": Trigger.RUN,
        "verify": verify,
        "meta": (("command", command), ("exit", str(status)), ("duration-ms", str(duration))),
        "attached": ((OUTPUT, text),) if text else (),
    }
    try:
        return RunResult(status, before, capture(intent, asked), (), text)
    except (EnvhistError, OSError) as error:
        return RunResult(status, before, None, (f"{NOT_CAPTURED}: {in_words(error)}",), text)


# A terminal of its own for a program that is run in between: ours shows what comes there, and hands it what is typed.
#
# Ours hands over every key as it is (Ctrl-C, too: the inner one makes a signal of it), and the inner one has ours'
# size.

IN = 0
SIZE = 8


def run_on_terminal(words: Sequence[str], keep: Take) -> int:
    """Run a program to its end on a terminal of its own; its status as a shell tells it."""
    manner = termios.tcgetattr(IN)
    process, master = os.forkpty()
    if process == 0:
        termios.tcsetattr(IN, termios.TCSANOW, manner)
        _hand_size(IN, OUT)
        end_here(words)

    def take(source: int, data: bytes) -> None:
        if source == IN:
            write_all(master, data)
        else:
            keep(data)
            write_all(OUT, data)

    try:
        with handing_on(process), _same_size(master), _every_key(manner):
            copy_until_exit(process, (master,), take, typed=IN)
            return status_of(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    finally:
        os.close(master)


@contextmanager
def _every_key(manner: list[Any]) -> Iterator[None]:
    tty.setraw(IN)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(IN, termios.TCSADRAIN, manner)


@contextmanager
def _same_size(master: int) -> Iterator[None]:
    _hand_size(OUT, master)
    before = signal.signal(signal.SIGWINCH, lambda *_: _hand_size(OUT, master))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _hand_size(source: int, target: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(SIZE)))
