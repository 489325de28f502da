"""A process that is killed right before its n-th change to the disk."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import count

# Every call by which our code changes a disk or a lock, and the spawning of a git that would.
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


def each_death(action: Callable[[], object]) -> Iterator[int]:
    """Kill the action before each of its steps in turn; yields the step's number after each death."""
    for step in count():
        if not dies(action, step):
            return
        yield step


def dies(action: Callable[[], object], step: int) -> bool:
    """Run the action in a child that is killed before the step of this number; False where it ended before."""
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
    for name in STEPS:
        setattr(os, name, _mortal(getattr(os, name), left))


def _mortal(call: Callable[..., object], left: count[int]) -> Callable[..., object]:
    def counted(*arguments: object, **keywords: object) -> object:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **keywords)

    return counted
