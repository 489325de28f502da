"""Run a command in a shell with a time limit, in a session of its own.

Output is passed on as it comes, and its end is kept. The run is over when the shell has ended: background processes are
killed, and cannot prolong it by keeping the output open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from git_envhist.checks.verdicts import CommandExit
from git_envhist.child_command import SHELL, ChildCommand, OutputTail, command_environment

MAX_TAIL = 16 << 10
"""The number of bytes at the end of the output that are kept."""
UNDER_CHECK = "GIT_ENVHIST_CHECK"
"""Set in the environment of a check, so that a capture inside does not check again."""

OutputListener = Callable[[bytes], None]


class RunOptions(NamedTuple):
    """The options of a run."""

    root: str
    environ: Mapping[str, str]
    limit: float | None = None
    """Time limit in seconds."""
    through: OutputListener | None = None
    """Called with each piece of output."""
    wrapper: Sequence[str] = ()
    """The words of a program that runs the command in a sandbox."""


def run_check(command: str, options: RunOptions) -> CommandExit:
    """Run a command to its end."""
    tail = OutputTail(MAX_TAIL)

    def take(_source: int, data: bytes) -> None:
        if options.through is not None:
            options.through(data)
        tail.take(data)

    started = time.monotonic()
    try:
        # No terminal: a check that asks a question would wait forever.
        child = ChildCommand.start(
            [*options.wrapper, *SHELL, command],
            # That program changes the directory itself.
            directory="/" if options.wrapper else options.root,
            environ=environment_of(options.environ, options.root),
            session=True,
        )
    except OSError as error:
        return CommandExit(tail=os.fsencode(f"the command could not be started: {error}\n"))
    with child:
        deadline = None if options.limit is None else started + options.limit
        try:
            timed_out = not child.follow(take, deadline=deadline)
        finally:
            # Ctrl-C does not reach another session.
            child.end_group()
        child.read_rest(take)
        code = child.wait()
    duration = round((time.monotonic() - started) * 1000)
    return CommandExit(
        code if code >= 0 else None, -code if code < 0 else None, duration, _whole_lines(tail), timed_out
    )


def environment_of(environ: Mapping[str, str], root: str) -> dict[str, str]:
    """Return the environment of a check: the caller's, and the directories of all checks that it is part of."""
    outer = [place for place in environ.get(UNDER_CHECK, "").split(os.pathsep) if place]
    return {**command_environment(environ, root), UNDER_CHECK: os.pathsep.join([*outer, root])}


def _whole_lines(tail: OutputTail) -> bytes:
    """Return the kept end of the output, from the start of a line if it has one."""
    _, newline, rest = tail.text.partition(b"\n")
    return rest if tail.omitted and newline and rest else tail.text
