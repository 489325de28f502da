"""Runs a git that talks to a server, which may be anybody's: what it may take is held to by the kernel, what is said is
kept as far as anybody would read it.

A shell waits for a word before it becomes that git: so it is held, and with it whatever it starts, from its first
moment on. What somebody there says without end is read and dropped; only a listing that has no end is an error. Of what
is written over itself, as progress is, the last remains. Whoever says nothing for too long is ended, and so is the git
of a program that is stopped itself: else it would go on behind its back.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from typing import Protocol

from git_envhist import trace
from git_envhist.errors import Damaged, GitFailed
from git_envhist.store.git import GitResult
from git_envhist.system import pipe_ours

WAITING = ("sh", "-c", 'read -r now && exec "$@"', "sh")
MOST_TOLD = 64 << 20
"""A hundred thousand refs with long names."""
MOST_SAID = 1 << 20
STEP = re.compile(rb"([A-Z][a-z]{1,20}(?: [a-z]{1,20}){1,3}): +([0-9]{1,3})% ")
AT_ONCE = 1 << 16
LONGEST_END = 5.0
LONGEST_WAIT = 2_000_000.0
"""Three weeks: the kernel counts them in 31 bits of milliseconds."""


class Holds(Protocol):
    """What a process may take."""

    def hold(self, process: int) -> None: ...


class NoOutputTimeout(Exception):
    """Nothing was heard for as long as may be."""


def run_limited(
    words: Sequence[str],
    environment: Mapping[bytes, bytes],
    holds: Holds,
    stdin: bytes = b"",
    *,
    patience: float | None = None,
    heard: Callable[[bytes], None] | None = None,
) -> GitResult:
    """Run a command to its end; `NoOutputTimeout` where it says nothing for so many seconds. `heard`: given what it
    says."""
    began = trace.now()
    pipes = pipe_ours(), pipe_ours(), pipe_ours()
    # Files of Python's: what stops this program never comes between the closing of one and its mark.
    ours = FileIO(pipes[0][1], "w"), FileIO(pipes[1][0]), FileIO(pipes[2][0])
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    actions = [(os.POSIX_SPAWN_DUP2, one, number) for number, one in enumerate(theirs)]
    try:
        try:
            child = os.posix_spawnp("sh", [*WAITING, *words], environment, file_actions=actions)
        except FileNotFoundError as missing:
            raise GitFailed("there is no 'sh' on the PATH") from missing
        finally:
            for one in theirs:
                os.close(one)
        try:
            holds.hold(child)
            told, said = _talk(ours, b"now\n" + stdin, patience, heard)
        except BaseException:
            _end(child)
            raise
    finally:
        for mine in ours:
            mine.close()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    trace.tell_git(words, began, status)
    if len(told) > MOST_TOLD:
        raise Damaged(f"more is listed there than {MOST_TOLD:,} bytes hold")
    return GitResult(status, told, said)


def parse_progress(said: bytes) -> str | None:
    """How far a git says it is, here or there; of what comes from elsewhere no more than these few letters."""
    found = STEP.findall(said)
    return f"{found[-1][0].decode('ascii').lower()} {int(found[-1][1])} %" if found else None


def _end(child: int) -> None:
    """End a git, which has to clear up after itself; one that does not is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(child, number)
        until = time.monotonic() + LONGEST_END
        while number is signal.SIGKILL or time.monotonic() < until:
            with suppress(ChildProcessError):
                if os.waitpid(child, os.WNOHANG)[0] == 0:
                    time.sleep(0.02)
                    continue
            return


def _talk(
    ours: Sequence[FileIO], stdin: bytes, patience: float | None, told: Callable[[bytes], None] | None
) -> tuple[bytes, bytes]:
    """Say one thing, hear two."""
    left = memoryview(stdin)
    heard = {1: bytearray(), 2: bytearray()}
    most = {1: MOST_TOLD + 1, 2: MOST_SAID}
    with selectors.DefaultSelector() as selector:
        os.set_blocking(ours[0].fileno(), False)
        for number, one in enumerate(ours):
            selector.register(one, selectors.EVENT_READ if number else selectors.EVENT_WRITE, number)
        while selector.get_map():
            heard_of = selector.select(patience and min(patience, LONGEST_WAIT))
            if not heard_of:
                raise NoOutputTimeout
            for key, _ in heard_of:
                if key.data:
                    part = os.read(key.fd, AT_ONCE)
                    room = most[key.data] - len(heard[key.data])
                    heard[key.data] += part[:room]
                    if key.data == 2 and told is not None:
                        told(part)
                    if key.data == 2 and b"\r" in part:
                        heard[2] = _written_over(heard[2])
                    is_done = not part or (key.data == 1 and room <= len(part))
                else:
                    left = _said_of(key.fd, left)
                    is_done = not left
                if is_done:
                    selector.unregister(key.fd)
                    ours[key.data].close()
    return bytes(heard[1]), bytes(heard[2])


def _written_over(said: bytearray) -> bytearray:
    """What is left of lines that were written over; the last may still be."""
    # Line by line, and no pattern: one that fails at the end of a long line is tried from each place of it again.
    return bytearray(b"\n".join(map(_left_of, bytes(said).split(b"\n"))))


def _left_of(line: bytes) -> bytes:
    told = line.rstrip(b"\r")
    return told.rpartition(b"\r")[2] + line[len(told) :][:1] if told else b""


def _said_of(pipe: int, left: memoryview) -> memoryview:
    """What is left to be said after a pipe took what it takes."""
    try:
        return left[os.write(pipe, left) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:  # it ended before, and says why
        return left[:0]
