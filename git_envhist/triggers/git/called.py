"""What `git-envhist hook <event> <caller>` does: it lets go of git, leaves a mark, and captures when git is done.

One worker for each working tree, by a lock: whoever finds another at work has only to leave its mark. A rebase of a
hundred commits is one mark; the capture waits for its end, and for the end of the git that called.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress

from git_envhist.store.git import LOCAL_VARIABLES, clean_environment, spawn
from git_envhist.store.locks import locked_now
from git_envhist.triggers.git.events import EVENTS
from git_envhist.triggers.git.outcomes import (
    Mark,
    Outcome,
    leave_mark,
    place_of,
    read_mark,
    take_mark,
    write_outcome,
)

UNDER_WAY = ("rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
"""What stands in a git directory while something is half done."""
REBASING = {"rebase-merge", "rebase-apply"}
TOUCHED = ("HEAD", "index", "logs/HEAD", "rebase-merge/done", "rebase-apply/next", "sequencer/todo")
"""What a git that gets on with it touches."""
QUIET = 10.0
"""Seconds without a touch after which nobody waits any longer: a rebase has stopped for its user."""
STEP, LONGEST_STEP = 0.01, 0.25
LONGEST = 3600
"""Seconds after which a capture that nobody watches is given up."""
# What git sets for its hooks and we are not meant by, and dates of commits that are no moments of ours.
NOT_OURS = (
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_DATE",
    "GIT_REFLOG_ACTION",
)


def called(words: Sequence[str], environ: MutableMapping[str, str]) -> int:
    """Answer a hook, whatever it says: nothing is printed, nothing fails."""
    with suppress(Exception):
        event, caller = words[0], _number(words[1:2])
        if event in EVENTS:
            let_go()
            clear(environ)
            git_dir = _git_dir(environ)
            if git_dir is not None:
                _answer(git_dir, event, caller, environ)
    return 0


def let_go() -> None:
    """No terminal, no group, no stream and no descriptor of whoever called; and no hurry."""
    with suppress(OSError):
        os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, 1 << 16)
    os.nice(5)


def clear(environ: MutableMapping[str, str]) -> None:
    """Take out what git set for its own command; which repository is meant is said absolutely."""
    git_dir, tree = environ.get("GIT_DIR"), environ.get("GIT_WORK_TREE")
    for name in (*map(os.fsdecode, LOCAL_VARIABLES), *NOT_OURS):
        environ.pop(name, None)
    if git_dir:
        environ["GIT_DIR"] = os.path.abspath(git_dir)
        # A hook stands at the top.
        environ["GIT_WORK_TREE"] = os.path.abspath(tree or ".")


def wait_for_end(git_dir: str, caller: int | None, quiet: float = QUIET) -> bool:
    """Wait until the caller and whatever is half done have ended; False where that has stopped half way."""
    seen, since, step = _touched(git_dir), time.monotonic(), STEP
    while (half_done := bool(_half_done(git_dir))) or _runs(caller):
        now = _touched(git_dir)
        if now != seen:
            seen, since, step = now, time.monotonic(), STEP
        elif time.monotonic() - since > quiet:
            return not half_done
        time.sleep(step)
        step = min(step * 1.5, LONGEST_STEP)
    return True


def _answer(git_dir: str, event: str, caller: int | None, environ: Mapping[str, str]) -> None:
    place = place_of(os.path.join(git_dir, "envhist"))
    leave_mark(place, event)
    left: Mark | None = None
    # A mark that came while we let go of the lock was left to us.
    while (mark := read_mark(place)) is not None and (left is None or mark.seen != left.seen):
        with locked_now(os.path.join(place, "lock")) as alone:
            if not alone:
                return
            left = _serve(place, git_dir, caller, environ)


def _serve(place: str, git_dir: str, caller: int | None, environ: Mapping[str, str]) -> Mark | None:
    """Answer all marks; the one that has to wait for a later hook, if one has."""
    while (mark := read_mark(place)) is not None:
        rebases = REBASING & _half_done(git_dir)
        if not wait_for_end(git_dir, caller):
            message = "a rebase, merge or cherry-pick has stopped half way: captured when it goes on"
            write_outcome(place, Outcome(mark.event, time.time(), "waiting", message=message))
            return mark
        # Marks that came meanwhile are answered by the same capture.
        mark = read_mark(place) or mark
        # A rebase begins with a checkout, whose hook is called first.
        outcome = _capture("post-rewrite" if rebases else mark.event, environ)
        write_outcome(place, outcome)
        take_mark(place, mark)
    return None


def _capture(event: str, environ: Mapping[str, str]) -> Outcome:
    from git_envhist.errors import EnvhistError  # loaded late: most calls find a worker and end
    from git_envhist.triggers.git.taking import take  # loaded late: likewise

    started = time.monotonic()

    def outcome(result: str, snapshot: str | None = None, message: str = "", hint: str = "") -> Outcome:
        seconds = round(time.monotonic() - started, 3)
        return Outcome(event, time.time(), result, seconds, snapshot, message, hint)

    try:
        with _limited(LONGEST):
            return outcome(*take(EVENTS.get(event, EVENTS["post-commit"]), environ))
    except EnvhistError as error:
        return outcome("failed", None, error.message, error.hint or "")
    except Exception as failure:
        return outcome("failed", None, f"{type(failure).__name__}: {failure}")


class _limited:  # noqa: N801 - it is used as a function is
    """What runs longer than so many seconds is stopped as by Ctrl-C, and leaves nothing half done."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)


def _too_long(_number: int, _frame: object) -> None:
    raise TimeoutError("the capture took too long")


def _git_dir(environ: Mapping[str, str]) -> str | None:
    environment = clean_environment()
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        if name in environ:
            environment[name.encode()] = os.fsencode(environ[name])
    done = spawn(["git", "rev-parse", "--absolute-git-dir"], environment)
    return os.fsdecode(done.out).removesuffix("\n") if done.status == 0 else None


def _half_done(git_dir: str) -> set[str]:
    return {name for name in UNDER_WAY if os.path.lexists(os.path.join(git_dir, name))}


def _touched(git_dir: str) -> list[tuple[int, int] | None]:
    return [_stamp(os.path.join(git_dir, name)) for name in TOUCHED]


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns


def _runs(caller: int | None) -> bool:
    if caller is None or caller <= 1:
        return False
    try:
        os.kill(caller, 0)
    except OSError:
        return False
    return not _is_dead(caller)


def _is_dead(caller: int) -> bool:
    """A process that has ended, and whose parent has not looked yet."""
    try:
        with open(f"/proc/{caller}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _number(words: Sequence[str]) -> int | None:
    return int(words[0]) if words and words[0].isdecimal() else None
