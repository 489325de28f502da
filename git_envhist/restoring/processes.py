"""Who else uses the environment: processes that hold its files open, and those that run on in it.

Read from `/proc`, as far as it may be read; where there is none, nothing is known and nothing is said.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

from git_envhist.store.atwork import callers

PROC = b"/proc"
GONE = b" (deleted)"
LONGEST_COMMAND = 60


class Process(NamedTuple):
    """A process, as one would tell somebody of it."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"'{self.command}' ({self.pid})"


def holders(paths: Collection[bytes]) -> dict[bytes, Process]:
    """For each of these real paths that a process other than this one has open, one such process."""
    wanted = frozenset(paths)
    found: dict[bytes, Process] = {}
    if wanted:
        for pid in _others():
            for path in wanted.intersection(_open_files(pid)):
                found.setdefault(path, _describe(pid))
    return found


def at_work_in(root: bytes) -> list[Process]:
    """Processes that were started in a directory, or from a program in it, and are not how we were called."""
    # This process, and those that wait for it: the shell, git.
    ours = callers()
    inside = root.rstrip(b"/") + b"/"

    def is_inside(place: bytes) -> bool:
        return place == root or place.startswith(inside)

    return [
        _describe(pid)
        for pid in _others()
        if pid not in ours and any(map(is_inside, _places(pid))) and not _listens_to_us(pid)
    ]


def _others() -> Iterator[int]:
    try:
        names = os.listdir(PROC)
    except OSError:
        return
    here = os.getpid()
    yield from (int(name) for name in names if name.isdigit() and int(name) != here)


def _open_files(pid: int) -> Iterator[bytes]:
    directory = b"%b/%d/fd" % (PROC, pid)
    try:
        numbers = os.listdir(directory)
    except OSError:
        return  # gone, or somebody else's
    for number in numbers:
        yield _target(b"%b/%b" % (directory, number))


def _places(pid: int) -> Iterator[bytes]:
    for link in (b"cwd", b"exe"):
        yield _target(b"%b/%d/%b" % (PROC, pid, link))


def _target(link: bytes) -> bytes:
    try:
        return os.readlink(link).removesuffix(GONE)
    except OSError:
        return b""


def _listens_to_us(pid: int) -> bool:
    """Whether it reads from the pipe that we write to: `git envrestore … | tail`."""
    heard = _target(b"%b/%d/fd/0" % (PROC, pid))
    said = {_target(b"%b/self/fd/%d" % (PROC, number)) for number in (1, 2)}
    return heard.startswith(b"pipe:") and heard in said


def _describe(pid: int) -> Process:
    try:
        with open(b"%b/%d/cmdline" % (PROC, pid), "rb") as file:
            words = file.read(4096).rstrip(b"\0").split(b"\0")
    except OSError:
        words = []
    command = " ".join(word.decode("utf-8", "replace") for word in words) or "a process"
    if len(command) > LONGEST_COMMAND:
        command = command[: LONGEST_COMMAND - 1] + "…"
    return Process(pid, command)
