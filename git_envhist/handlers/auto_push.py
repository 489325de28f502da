"""A push of the history that rides along with `git push`, where `envhist.autoPush` says so.

It begins when that has ended, and the capture for a commit that was made just before; it asks nobody anything, takes
five minutes at most, and tells what came of it to `git envlog status` alone. What is large goes in parts: one that was
cut off there is gone on with by the next.
"""

from __future__ import annotations

import glob
import os
import signal
import time
from collections.abc import MutableMapping
from contextlib import suppress

from git_envhist.disk import locked_now
from git_envhist.integrations.git_hooks import (
    PUSH_HOOK,
    UNREADABLE,
    hooks_state,
    pushes_state,
    read_outcomes,
    read_pending,
    remove_pending,
    write_outcome,
    write_pending,
)
from git_envhist.model.work import HookRun, PendingHook

MAX_LENGTH = 300
STEP, MAX_STEP = 0.02, 0.5
MAX_AT_ONCE = 50_000_000
"""What goes at once: so much is lost, at most, when time is up."""
MAX_CAPTURE = 60.0
MAX_START = 5.0
"""A hook of git's waits up to two seconds before the program that it starts leaves its mark."""
NOBODY_IS_ASKED = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "SSH_ASKPASS_REQUIRE": "never"}


def auto_push(
    git_dir: str, event: str, caller: int | None, remote: str, environ: MutableMapping[str, str]
) -> None:
    """Push along; whoever finds another at that has only to leave a mark."""
    place = pushes_state(os.path.join(git_dir, "envhist"))
    write_pending(place, remote)
    environ.update(NOBODY_IS_ASKED)
    while (mark := read_pending(place)) is not None:
        with locked_now(os.path.join(place, "lock")) as alone:
            if not alone:
                return
            _wait_for(caller)
            _wait_for_capture(hooks_state(os.path.join(git_dir, "envhist")))
            _answer(place, event, mark, environ)
            remove_pending(place, mark)


def _answer(place: str, event: str, mark: PendingHook, environ: MutableMapping[str, str]) -> None:
    from git_envhist.errors import EnvhistError  # loaded late: most calls find another at work

    started = time.monotonic()
    told = ("failed", "", "")
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(MAX_LENGTH)
    late = False
    try:
        told = _push(None if mark.seen == UNREADABLE else mark.event, environ)
    except TimeoutError as over:
        told, late = ("failed", str(over), "the next goes on; or: git envlog push"), True
    except EnvhistError as error:
        told = ("refused" if error.exit_code == 3 else "failed", error.message, error.hint or "")
    except Exception as failure:
        told = ("failed", f"{type(failure).__name__}: {failure}", "")
    finally:
        signal.alarm(0)
    result, message, hint = told
    seconds = round(time.monotonic() - started, 3)
    write_outcome(place, HookRun(event, time.time(), result, seconds, None, message, hint))
    if late:
        _end_what_we_started()


def _push(remote: str | None, environ: MutableMapping[str, str]) -> tuple[str, str, str]:
    from git_envhist.api import AroundHistory  # loaded late: likewise
    from git_envhist.model.storage import PushOutcome as Became  # loaded late: likewise

    history = AroundHistory.open(".", environ=environ, workers="fork")
    if not history.settings.auto_push or not history.settings.enabled or history.timeline is None:
        return "off", "", ""
    done = history.push(history.settings.remote or remote, most=MAX_AT_ONCE)
    same = all(one.outcome is Became.SAME for one in done.timelines)
    return ("unchanged" if same else "pushed"), "", ""


def _wait_for(caller: int | None) -> None:
    """Until git has pushed what it was asked to push: the line is its."""
    until, step = time.monotonic() + MAX_LENGTH, STEP
    while caller is not None and time.monotonic() < until:
        try:
            os.kill(caller, 0)
        except OSError:
            return
        time.sleep(step)
        step = min(step * 1.5, MAX_STEP)


def _wait_for_capture(captures: str) -> None:
    """Until what was committed before the push is captured: it is meant to go along."""
    until, step = time.monotonic() + MAX_CAPTURE, STEP
    while _is_expected(captures) and time.monotonic() < until:
        time.sleep(step)
        step = min(step * 1.5, MAX_STEP)


def _is_expected(captures: str) -> bool:
    """Whether a hook was called for a capture of which nothing is known yet."""
    outcomes = read_outcomes(captures)
    mark = read_pending(captures)
    if mark is not None:
        # One that waits for the end of a rebase waits longer than anybody.
        return not (outcomes and outcomes[-1].result == "waiting" and outcomes[-1].at >= mark.at)
    last = max((os.path.getmtime(path) for path in _called(captures)), default=0.0)
    # One that began before the hook was called may hold what was there before its commit.
    began = outcomes[-1].at - outcomes[-1].seconds if outcomes else 0.0
    return began < last and time.time() - last < MAX_START


def _called(captures: str) -> list[str]:
    """What hooks leave that were called, each anew."""
    return [
        path for path in glob.glob(os.path.join(glob.escape(captures), "last-*")) if PUSH_HOOK not in path
    ]


def _end_what_we_started() -> None:
    # The hook made a session of its own: nobody else is in this group.
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(OSError):
            os.killpg(0, signal.SIGTERM)


def _too_long(_number: int, _frame: object) -> None:
    raise TimeoutError("the push took too long")
