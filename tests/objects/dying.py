"""Run code in a process that is killed before its n-th change to the disk."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import count

from tests.support.depth import sample

# Every call by which git-envhist changes a disk or a lock, and the start of a git that would.
STEPS = (
    *(
        "open",
        "mkdir",
        "rename",
        "link",
        "unlink",
        "rmdir",
        "chmod",
        "fchmod",
        "chown",
        "pwrite",
        "write",
        "ftruncate",
    ),
    *("fsync", "posix_spawnp"),
)
NEVER = 1 << 30
"""A number of steps that no action reaches."""
_WRITE = os.write


def each_death(action: Callable[[], object], reset: Callable[[], object], default: int = 12) -> Iterator[int]:
    """Kill the action before its steps in turn and yield the step's number after each death; end with a whole run.

    By default it dies before `default` steps, under `--full` before each. `reset` restores the state before the
    action; it is called once, after the run that counts the steps.
    """
    steps = count_steps(action)
    reset()
    for step in sample(steps, default):
        if not dies(action, step):
            return
        yield step
    # Runs may differ by a few steps.
    while dies(action, steps):
        yield steps
        steps += 1


def count_steps(action: Callable[[], object]) -> int:
    """Run the action to its end in a child and return the number of its steps."""
    reading, writing = os.pipe()

    def counted() -> None:
        taken = count()
        _before_each_step(lambda: next(taken))
        action()
        _WRITE(writing, str(next(taken)).encode())

    with open(reading) as answer:
        assert not dies(counted, NEVER)
        os.close(writing)
        return int(answer.read())


def dies(action: Callable[[], object], step: int) -> bool:
    """Run the action in a child that is killed before the step of this number; return False if it ended before."""
    child = os.fork()
    if child == 0:
        _act(action, step)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "the action failed"
    return False


def _act(action: Callable[[], object], step: int) -> None:
    status = 1
    try:
        _count_down(step)
        action()
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _count_down(step: int) -> None:
    left = count(step, -1)

    def die() -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _before_each_step(die)


def _before_each_step(happens: Callable[[], object]) -> None:
    for name in STEPS:
        setattr(os, name, _preceded(getattr(os, name), happens))


def _preceded(call: Callable[..., object], happens: Callable[[], object]) -> Callable[..., object]:
    def replaced(*arguments: object, **keywords: object) -> object:
        happens()
        return call(*arguments, **keywords)

    return replaced
