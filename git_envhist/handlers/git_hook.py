"""Handle the hooks of git: `git-envhist hook <event> <caller>` captures in the background when git has finished.

Each call detaches from git and leaves a mark. Per working tree one process captures, and one waits for its lock; a
further call only leaves its mark, which the waiting process answers. The capture starts when the git that called has
ended, and after a rebase, merge or cherry-pick has ended: a rebase of a hundred commits is one capture. The result is
written for `git envlog status`; nothing is printed, and git never fails because of a hook.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from typing import Protocol

from git_envhist.api import EnvHistory
from git_envhist.checks.verdicts import check_of_capture
from git_envhist.consent import NOT_APPROVED, UNATTENDED, may_run
from git_envhist.git.process import LOCAL_VARIABLES, SAFE_GIT, clean_environment, run_to_end
from git_envhist.integrations.git_hooks import (
    EVENTS,
    PUSH_HOOK,
    hooks_state,
    read_pending,
    remove_pending,
    write_outcome,
    write_pending,
)
from git_envhist.locks import locked, try_lock
from git_envhist.model import CaptureResult, Trigger
from git_envhist.model.integrations import HookRun, PendingHook
from git_envhist.platform import open_file_only, process_fields

NAMED = "--named"
"""Before the event: the hook was installed for every repository."""
UNDER_WAY = ("rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
"""Files in a git directory during an unfinished operation."""
TOUCHED = ("HEAD", "index", "logs/HEAD", "rebase-merge/done", "rebase-apply/next", "sequencer/todo")
"""Files that a git touches while it continues such an operation."""
QUIET = 10.0
"""Seconds without a change after which a rebase has stopped for its user."""
STEP, MAX_STEP = 0.01, 0.25
LOG_TAIL = 4096
"""Bytes at the end of HEAD's log that contain its last line."""
MAX_SECONDS = 3600
"""The timeout of a capture in the background."""
# Variables that git sets for a hook: author and dates of its commit, which are not those of our snapshot.
NOT_OURS = (
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_DATE",
    "GIT_REFLOG_ACTION",
)


def handle_git_hook(words: Sequence[str], environ: MutableMapping[str, str]) -> int:
    """Handle one hook; return 0, whatever happens."""
    with suppress(Exception):
        only_named = words[0] == NAMED
        words = words[1:] if only_named else words
        event, caller = words[0], _number(words[1:2])
        if event in EVENTS or event == PUSH_HOOK:
            detach()
            clear_git_environment(environ)
            git_dir = _git_dir(environ)
            if git_dir is not None and only_named and not _is_named(environ):
                return 0
            if git_dir is not None and event == PUSH_HOOK:
                from git_envhist.handlers.auto_push import auto_push  # loaded late: a capture does not push

                auto_push(git_dir, event, caller, words[2], environ)
            elif git_dir is not None:
                _answer(git_dir, event, caller, environ)
    return 0


def detach() -> None:
    """Leave the caller: its terminal, process group, streams and descriptors."""
    with suppress(OSError):
        os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, 1 << 16)


def clear_git_environment(environ: MutableMapping[str, str]) -> None:
    """Remove the variables that git set for its own command; make the repository's paths absolute."""
    git_dir, tree = environ.get("GIT_DIR"), environ.get("GIT_WORK_TREE")
    for name in (*map(os.fsdecode, LOCAL_VARIABLES), *NOT_OURS):
        environ.pop(name, None)
    if git_dir:
        environ["GIT_DIR"] = os.path.abspath(git_dir)
        # git runs a hook at the top of the working tree.
        environ["GIT_WORK_TREE"] = os.path.abspath(tree or ".")


def wait_for_end(git_dir: str, caller: int | None, quiet: float = QUIET) -> bool:
    """Wait until the caller and an unfinished operation have ended; return False if the operation has stopped."""
    seen, since, step = _touched(git_dir), time.monotonic(), STEP
    while (unfinished := _is_unfinished(git_dir)) or _runs(caller):
        now = _touched(git_dir)
        if now != seen:
            seen, since, step = now, time.monotonic(), STEP
        elif time.monotonic() - since > quiet:
            return not unfinished
        time.sleep(step)
        step = min(step * 1.5, MAX_STEP)
    return True


def _answer(git_dir: str, event: str, caller: int | None, environ: Mapping[str, str]) -> None:
    place = hooks_state(os.path.join(git_dir, "envhist"))
    write_pending(place, event)
    with ExitStack() as lock_stack:
        if _wait_for_lock(place, lock_stack):
            _serve(place, git_dir, caller, environ, lock_stack.close)


def _wait_for_lock(place: str, lock_stack: ExitStack) -> bool:
    """Wait for the process that captures; return False if another one waits already: it answers our mark too."""
    with try_lock(os.path.join(place, "next")) as alone:
        if alone:
            lock_stack.enter_context(locked(os.path.join(place, "lock")))
        return alone


def _serve(
    place: str, git_dir: str, caller: int | None, environ: Mapping[str, str], release: Callable[[], None]
) -> None:
    """Capture for the marks, unless an operation has stopped: a later hook captures then."""
    mark = read_pending(place)
    if mark is None:
        return
    if not wait_for_end(git_dir, caller):
        message = "a rebase, merge or cherry-pick has stopped: captured when it continues"
        write_outcome(place, HookRun(mark.event, time.time(), "waiting", message=message))
        return
    # The same capture answers marks left in the meantime.
    mark = read_pending(place) or mark
    _Capture(place, mark, _real_event(git_dir, mark.event), release).run(environ)


class _Capture:
    """A capture of a hook: write its result as soon as the snapshot exists, then release the locks.

    A check that is configured for hooks runs after that.
    """

    def __init__(self, place: str, mark: PendingHook, event: str, release: Callable[[], None]) -> None:
        self._place = place
        self._mark = mark
        self._event = event
        self._release = release
        self._started = time.monotonic()
        self._is_reported = False

    def run(self, environ: Mapping[str, str]) -> None:
        from git_envhist.errors import EnvhistError  # loaded late: most calls only leave a mark

        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(MAX_SECONDS)
        try:
            capture_for_hook(EVENTS.get(self._event, EVENTS["post-commit"]), environ, self.report)
        except EnvhistError as error:
            self.report("failed", None, error.message, error.hint or "")
        except Exception as failure:
            self.report("failed", None, f"{type(failure).__name__}: {failure}")

    def report(self, result: str, snapshot: str | None, message: str = "", hint: str = "") -> None:
        """Write the result of the hook, once, and release the locks."""
        if self._is_reported:
            return
        self._is_reported = True
        signal.alarm(0)
        seconds = round(time.monotonic() - self._started, 3)
        write_outcome(
            self._place, HookRun(self._event, time.time(), result, seconds, snapshot, message, hint)
        )
        remove_pending(self._place, self._mark)
        self._release()


def _too_long(_number: int, _frame: object) -> None:
    raise TimeoutError("the capture took too long")


def _git_dir(environ: Mapping[str, str]) -> str | None:
    done = run_to_end([*SAFE_GIT, "rev-parse", "--absolute-git-dir"], _environment(environ))
    return os.fsdecode(done.out).removesuffix("\n") if done.status == 0 else None


def _environment(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    environment = clean_environment()
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        if name in environ:
            environment[name.encode()] = os.fsencode(environ[name])
    return environment


def _is_named(environ: Mapping[str, str]) -> bool:
    """Return whether a person captured or installed in the repository; hooks of every repository need that."""
    from git_envhist.consent import trusted_list  # loaded late: hooks of one repository ask nothing

    done = run_to_end([*SAFE_GIT, "rev-parse", "--git-common-dir"], _environment(environ))
    common = os.fsdecode(done.out).removesuffix("\n")
    return done.status == 0 and trusted_list(environ).has_repository(os.path.abspath(common))


def _is_unfinished(git_dir: str) -> bool:
    return any(os.path.lexists(os.path.join(git_dir, name)) for name in UNDER_WAY)


def _real_event(git_dir: str, event: str) -> str:
    """Return the event; HEAD's log shows if a checkout was the start of a rebase."""
    if event != "post-checkout":
        return event
    try:
        with open(os.path.join(git_dir, "logs/HEAD"), "rb", opener=open_file_only) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError:
        return event
    return "post-rewrite" if last.partition(b"\t")[2].startswith(b"rebase") else event


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
    """Return whether a process is a zombie."""
    try:
        return process_fields(caller)[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _number(words: Sequence[str]) -> int | None:
    return int(words[0]) if words and words[0].isdecimal() else None


class Report(Protocol):
    """Called with the result of a capture and its snapshot's id as soon as the snapshot exists."""

    def __call__(self, result: str, snapshot: str | None, message: str = "") -> None: ...


def capture_for_hook(trigger: Trigger, environ: Mapping[str, str], report: Report) -> None:
    """Capture with the subject of the last commit as intent; then run the check, if it is configured for hooks."""
    history = EnvHistory.open(".", environ={**environ, UNATTENDED: "1"}, workers="fork", one_command=True)
    if not history.settings.enabled:
        report("off", None)
        return

    def report_captured(captured: CaptureResult) -> None:
        made = captured.snapshot
        result, snapshot = ("unchanged", None) if made is None else ("captured", made.id)
        report(result, snapshot, "; ".join(_not_approved(history, trigger, captured)))

    history.capture(trigger=trigger, if_changed=not _has_moved(history), captured=report_captured)


def _not_approved(history: EnvHistory, trigger: Trigger, captured: CaptureResult) -> Iterator[str]:
    """Yield a warning for each configured command that no person ran here before: hooks do not run it."""
    yield from (warning for warning in captured.warnings if NOT_APPROVED in warning)
    command = check_of_capture(None, history.settings, trigger)
    if command is not None and not may_run(history.environ, history.repository.common_dir, command):
        yield f"the check does not run: {NOT_APPROVED}; run it: git envlog verify"


def _has_moved(history: EnvHistory) -> bool:
    """Return whether HEAD is another commit than at the newest snapshot."""
    newest = history.log(limit=1)
    head = history.repository.resolve_ref("HEAD")
    return not newest or newest[0].head != head
