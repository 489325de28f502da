"""What `git-envhist hook <event> <caller>` does: it lets go of git, leaves a mark, and captures when git is done.

One worker for each working tree, by a lock, and one that waits for it: whoever finds both has only to leave its mark.
A rebase of a hundred commits is one mark; the capture waits for its end, and for the end of the git that called.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from typing import Protocol

from git_envhist.api import AroundHistory
from git_envhist.checks.verdicts import check_of_capture
from git_envhist.consent import NOT_APPROVED, UNATTENDED, may_run
from git_envhist.disk import locked, locked_now
from git_envhist.git.process import LOCAL_VARIABLES, SAFE_GIT, clean_environment, spawn
from git_envhist.integrations.git_hooks import (
    EVENTS,
    PUSH_HOOK,
    hooks_state,
    read_pending,
    remove_pending,
    write_outcome,
    write_pending,
)
from git_envhist.model import CaptureResult, Trigger
from git_envhist.model.work import HookRun, PendingHook
from git_envhist.platform import open_file_only

NAMED = "--named"
"""Before the event: the hook was installed for every repository."""
UNDER_WAY = ("rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
"""What stands in a git directory while something is half done."""
TOUCHED = ("HEAD", "index", "logs/HEAD", "rebase-merge/done", "rebase-apply/next", "sequencer/todo")
"""What a git that gets on with it touches."""
QUIET = 10.0
"""Seconds without a touch after which nobody waits any longer: a rebase has stopped for its user."""
STEP, MAX_STEP = 0.01, 0.25
LAST_WORDS = 4096
"""So many bytes at the end of HEAD's log hold its last line."""
MAX_LENGTH = 3600
"""Seconds after which a capture that nobody watches is given up."""
# What git sets for its hooks and we are not meant by, and dates of commits that are no moments of ours.
NOT_OURS = (
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_DATE",
    "GIT_REFLOG_ACTION",
)


def handle_git_hook(words: Sequence[str], environ: MutableMapping[str, str]) -> int:
    """Answer a hook, whatever it says: nothing is printed, nothing fails."""
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
                from git_envhist.handlers.auto_push import auto_push  # loaded late: captures need none of it

                auto_push(git_dir, event, caller, words[2], environ)
            elif git_dir is not None:
                _answer(git_dir, event, caller, environ)
    return 0


def detach() -> None:
    """No terminal, no group, no stream and no descriptor of whoever called."""
    with suppress(OSError):
        os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, 1 << 16)


def clear_git_environment(environ: MutableMapping[str, str]) -> None:
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
    while (half_done := _half_done(git_dir)) or _runs(caller):
        now = _touched(git_dir)
        if now != seen:
            seen, since, step = now, time.monotonic(), STEP
        elif time.monotonic() - since > quiet:
            return not half_done
        time.sleep(step)
        step = min(step * 1.5, MAX_STEP)
    return True


def _answer(git_dir: str, event: str, caller: int | None, environ: Mapping[str, str]) -> None:
    place = hooks_state(os.path.join(git_dir, "envhist"))
    write_pending(place, event)
    with ExitStack() as held:
        if _comes_next(place, held):
            _serve(place, git_dir, caller, environ, held.close)


def _comes_next(place: str, held: ExitStack) -> bool:
    """Wait for whoever is at work; False where somebody waits already, who will answer our mark, too."""
    with locked_now(os.path.join(place, "next")) as alone:
        if alone:
            held.enter_context(locked(os.path.join(place, "lock")))
        return alone


def _serve(
    place: str, git_dir: str, caller: int | None, environ: Mapping[str, str], let_others: Callable[[], None]
) -> None:
    """Answer what is marked, unless that has to wait for a later hook."""
    mark = read_pending(place)
    if mark is None:
        return
    if not wait_for_end(git_dir, caller):
        message = "a rebase, merge or cherry-pick has stopped half way: captured when it goes on"
        write_outcome(place, HookRun(mark.event, time.time(), "waiting", message=message))
        return
    # Marks that came meanwhile are answered by the same capture.
    mark = read_pending(place) or mark
    _Capture(place, mark, _what_happened(git_dir, mark.event), let_others).run(environ)


class _Capture:
    """One capture; what came of it is told as soon as it stands, and then others may take their turn.

    A check that is configured for hooks runs after that.
    """

    def __init__(self, place: str, mark: PendingHook, event: str, let_others: Callable[[], None]) -> None:
        self._place = place
        self._mark = mark
        self._event = event
        self._let_others = let_others
        self._started = time.monotonic()
        self._stands = False

    def run(self, environ: Mapping[str, str]) -> None:
        from git_envhist.errors import EnvhistError  # loaded late: most calls find a worker and end

        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(MAX_LENGTH)
        try:
            capture_for_hook(EVENTS.get(self._event, EVENTS["post-commit"]), environ, self.tell)
        except EnvhistError as error:
            self.tell("failed", None, error.message, error.hint or "")
        except Exception as failure:
            self.tell("failed", None, f"{type(failure).__name__}: {failure}")

    def tell(self, result: str, snapshot: str | None, message: str = "", hint: str = "") -> None:
        if self._stands:
            return
        self._stands = True
        signal.alarm(0)
        seconds = round(time.monotonic() - self._started, 3)
        write_outcome(
            self._place, HookRun(self._event, time.time(), result, seconds, snapshot, message, hint)
        )
        remove_pending(self._place, self._mark)
        self._let_others()


def _too_long(_number: int, _frame: object) -> None:
    raise TimeoutError("the capture took too long")


def _git_dir(environ: Mapping[str, str]) -> str | None:
    done = spawn([*SAFE_GIT, "rev-parse", "--absolute-git-dir"], _environment(environ))
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

    done = spawn([*SAFE_GIT, "rev-parse", "--git-common-dir"], _environment(environ))
    common = os.fsdecode(done.out).removesuffix("\n")
    return done.status == 0 and trusted_list(environ).has_repository(os.path.abspath(common))


def _half_done(git_dir: str) -> bool:
    return any(os.path.lexists(os.path.join(git_dir, name)) for name in UNDER_WAY)


def _what_happened(git_dir: str, event: str) -> str:
    """The event, but for the checkout that a rebase begins with: HEAD's own log says what it was part of."""
    if event != "post-checkout":
        return event
    try:
        with open(os.path.join(git_dir, "logs/HEAD"), "rb", opener=open_file_only) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_WORDS))
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
    """A process that has ended, and whose parent has not looked yet."""
    try:
        with open(f"/proc/{caller}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _number(words: Sequence[str]) -> int | None:
    return int(words[0]) if words and words[0].isdecimal() else None


# The capture that a hook of git causes.


class Tell(Protocol):
    """Hears what came of it, and of which snapshot, as soon as that stands."""

    def __call__(self, result: str, snapshot: str | None, message: str = "") -> None: ...


def capture_for_hook(trigger: Trigger, environ: Mapping[str, str], tell: Tell) -> None:
    """Capture with the subject of the last commit as intent; then run the check, where hooks are to."""
    history = AroundHistory.open(".", environ={**environ, UNATTENDED: "1"}, workers="fork")
    if not history.settings.enabled:
        tell("off", None)
        return

    def stands(captured: CaptureResult) -> None:
        taken = captured.snapshot
        result, snapshot = ("unchanged", None) if taken is None else ("captured", taken.id)
        tell(result, snapshot, "; ".join(_not_approved(history, trigger, captured)))

    history.capture(trigger=trigger, if_changed=not _has_moved(history), captured=stands)


def _not_approved(history: AroundHistory, trigger: Trigger, captured: CaptureResult) -> Iterator[str]:
    """The commands of the configuration that do not run because no person ran them here before."""
    yield from (warning for warning in captured.warnings if NOT_APPROVED in warning)
    command = check_of_capture(None, history.settings, trigger)
    if command is not None and not may_run(history.environ, history.repository.common_dir, command):
        yield f"the check does not run: {NOT_APPROVED}; run it: git envlog verify"


def _has_moved(history: AroundHistory) -> bool:
    """Whether another code commit is checked out than when the newest snapshot was taken: that is a change, too."""
    newest = history.log(limit=1)
    head = history.repository.resolve_ref("HEAD")
    return not newest or newest[0].head != head
