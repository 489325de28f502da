"""Push the history after a `git push`, if `envhist.autoPush` is set.

A hook of git starts it in the background. It waits until git has pushed and until the capture of a commit made just
before has ended, asks no questions, and takes at most five minutes. A big push is sent in parts; the next push
continues after the last complete one. The result is written for `git envlog status`.
"""

from __future__ import annotations

import glob
import os
import signal
import time
from collections.abc import MutableMapping
from contextlib import suppress

from git_envhist.integrations.git_hooks import (
    PUSH_HOOK,
    UNREADABLE,
    auto_push_state,
    hooks_state,
    read_outcomes,
    read_pending,
    remove_pending,
    write_outcome,
    write_pending,
)
from git_envhist.locks import try_lock
from git_envhist.model.integrations import HookRun, PendingHook

MAX_SECONDS = 300
STEP, MAX_STEP = 0.02, 0.5
MAX_BYTES = 50_000_000
"""The size of one part: at most this much is sent again after a timeout."""
MAX_CAPTURE = 60.0
MAX_START = 5.0
"""Seconds until the program that a hook starts has left its mark; normally at most two."""
NO_QUESTIONS = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "SSH_ASKPASS_REQUIRE": "never"}


def auto_push(
    git_dir: str, event: str, caller: int | None, remote: str, environ: MutableMapping[str, str]
) -> None:
    """Push, unless another process pushes: that one finds the mark of this call and pushes again."""
    place = auto_push_state(os.path.join(git_dir, "envhist"))
    write_pending(place, remote)
    environ.update(NO_QUESTIONS)
    while (mark := read_pending(place)) is not None:
        with try_lock(os.path.join(place, "lock")) as alone:
            if not alone:
                return
            _wait_for(caller)
            _wait_for_capture(hooks_state(os.path.join(git_dir, "envhist")))
            _answer(place, event, mark, environ)
            remove_pending(place, mark)


def _answer(place: str, event: str, mark: PendingHook, environ: MutableMapping[str, str]) -> None:
    from git_envhist.errors import EnvhistError  # loaded late: most calls find another process pushing

    started = time.monotonic()
    outcome = ("failed", "", "")
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(MAX_SECONDS)
    late = False
    try:
        outcome = _push(None if mark.seen == UNREADABLE else mark.event, environ)
    except TimeoutError as over:
        outcome, late = ("failed", str(over), "the next push continues; or: git envlog push"), True
    except EnvhistError as error:
        outcome = ("refused" if error.exit_code == 3 else "failed", error.message, error.hint or "")
    except Exception as failure:
        outcome = ("failed", f"{type(failure).__name__}: {failure}", "")
    finally:
        signal.alarm(0)
    result, message, hint = outcome
    seconds = round(time.monotonic() - started, 3)
    write_outcome(place, HookRun(event, time.time(), result, seconds, None, message, hint))
    if late:
        _end_children()


def _push(remote: str | None, environ: MutableMapping[str, str]) -> tuple[str, str, str]:
    from git_envhist.api import EnvHistory  # loaded late: most calls find another process pushing
    from git_envhist.model.sharing import PushOutcome  # loaded late: as above

    history = EnvHistory.open(".", environ=environ, workers="fork", one_command=True)
    if not history.settings.auto_push or not history.settings.enabled or history.timeline is None:
        return "off", "", ""
    done = history.push(history.settings.remote or remote, max_bytes=MAX_BYTES)
    same = all(one.outcome is PushOutcome.SAME for one in done.timelines)
    return ("unchanged" if same else "pushed"), "", ""


def _wait_for(caller: int | None) -> None:
    """Wait until the `git push` that called the hook has ended."""
    until, step = time.monotonic() + MAX_SECONDS, STEP
    while caller is not None and time.monotonic() < until:
        try:
            os.kill(caller, 0)
        except OSError:
            return
        time.sleep(step)
        step = min(step * 1.5, MAX_STEP)


def _wait_for_capture(captures: str) -> None:
    """Wait until a commit made before the push is captured."""
    until, step = time.monotonic() + MAX_CAPTURE, STEP
    while _is_expected(captures) and time.monotonic() < until:
        time.sleep(step)
        step = min(step * 1.5, MAX_STEP)


def _is_expected(captures: str) -> bool:
    """Return whether a hook was called for a capture without a result yet."""
    outcomes = read_outcomes(captures)
    mark = read_pending(captures)
    if mark is not None:
        # A capture may wait for hours for the end of a rebase: the push does not wait for it.
        return not (outcomes and outcomes[-1].result == "waiting" and outcomes[-1].at >= mark.at)
    last = max((os.path.getmtime(path) for path in _called(captures)), default=0.0)
    # A capture that started before the hook may not include the commit.
    began = outcomes[-1].at - outcomes[-1].seconds if outcomes else 0.0
    return began < last and time.time() - last < MAX_START


def _called(captures: str) -> list[str]:
    """Return the files that hooks touch when they are called, except those of pushes."""
    return [
        path for path in glob.glob(os.path.join(glob.escape(captures), "last-*")) if PUSH_HOOK not in path
    ]


def _end_children() -> None:
    # The hook started its own session: this process group has our children only.
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(OSError):
            os.killpg(0, signal.SIGTERM)


def _too_long(_number: int, _frame: object) -> None:
    raise TimeoutError("the push took too long")
