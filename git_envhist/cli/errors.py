"""Errors, warnings and hints on standard error.

`report_error` prints one `error:` line and a `hint:` with the command to type next, or the error as JSON. Errors of the
system become `EnvhistError`s with a hint; any other exception is written to a report file. The advice functions print
hints after a command succeeded, each switched off by `advice.envhist<Word>`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from git_envhist.cli.output import Output
from git_envhist.cli.terminal import ASCII_SYMBOLS, as_bytes, shows_symbols
from git_envhist.directories_of_others import make_directories
from git_envhist.errors import EnvhistError, Interrupted, Refused
from git_envhist.printable_text import escape

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.command import Session
    from git_envhist.git.repository import Repository
    from git_envhist.model import CaptureResult, Verdict


LIMIT_HINTS = {
    errno.EMFILE: "raise the limit: ulimit -n 1024",
    errno.ENFILE: "close some programs, or raise fs.file-max",
    errno.ENOMEM: "close some programs, or raise the limit: ulimit -v",
    errno.EAGAIN: "close some programs, or raise the limit: ulimit -u",
}
"""Hints for limits of the system that this program cannot change."""
RUN_AGAIN = "run the command again: it continues where it stopped"


CHECK_DISK = "check the disk or its server, then run the command again"
FREE_SPACE = "free some space there (or raise the quota), then run the command again"
MOVED = "it was moved or removed: run the command again in its new place"
ALLOW_ACCESS = (
    "a sandbox, another owner or a read-only file system denies access: allow it, then run the command again"
)
REFUSALS = {
    **dict.fromkeys((errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT), CHECK_DISK),
    **dict.fromkeys((errno.ESTALE, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EUCLEAN), CHECK_DISK),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FREE_SPACE),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), ALLOW_ACCESS),
    **dict.fromkeys((errno.EINTR, errno.EBUSY, errno.ETXTBSY, errno.ENOLCK, errno.EDEADLK), RUN_AGAIN),
}
"""Hints for errors of the machine that any system call may return; they are no defects of this program."""


class SignalReceived(KeyboardInterrupt):
    """A signal asked the program to end; handled like Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def stoppable(what: str, hint: str) -> Iterator[None]:
    """Turn an interruption of the block into an `Interrupted` error that says what was completed."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise Interrupted(getattr(stopped, "number", signal.SIGINT), what, hint) from stopped


class InternalError(EnvhistError):
    """An unexpected exception: a defect of this program."""

    code = "defect"


_quiet = False


def set_quiet() -> None:
    """Print only warnings and errors from now on."""
    global _quiet  # noqa: PLW0603 - one program, one conversation
    _quiet = True


def is_quiet() -> bool:
    return _quiet


def report_error(error: EnvhistError, output: Output, *, as_json: bool) -> int:
    """Print the error as text or JSON, and return the exit status."""
    global _quiet  # noqa: PLW0603 - likewise
    _quiet = False
    if as_json:
        from git_envhist.cli.json_values import dump  # loaded late: only a failure under --json needs it

        output.line(dump(error_object(error)))
    else:
        print_error_line(f"error: {escape(error.message)}")
        if error.hint and not (isinstance(error, Refused) and _is_unwanted()):
            for line in error.hint.split("\n"):
                print_error_line(f"hint: {escape(line)}")
    return error.exit_code


def _is_unwanted() -> bool:
    """Return whether the configuration turns off the hints of refusals; other errors always have their hint."""
    from git_envhist.git.process import SAFE_GIT, run_to_end  # loaded late: only a refusal needs it

    if os.environ.get("GIT_ADVICE", "1").lower() in FALSE_VALUES:
        return True
    try:
        asked = run_to_end([*SAFE_GIT, "config", "--type=bool", "--get", f"advice.{REFUSAL}"], os.environb)
    except (EnvhistError, OSError):
        return False
    return asked.out.strip() == b"false"


def print_error_line(line: str) -> None:
    """Print a line to stderr, wrapped on a terminal; a stderr that cannot be written is ignored."""
    if _quiet and not line.startswith("warning: "):
        return
    with suppress(OSError):
        terminal = sys.stderr.isatty()
        if not shows_symbols(os.environ, terminal=terminal):
            line = line.translate(ASCII_SYMBOLS)
        _write("\n".join(_fitted(line)) if terminal else line, end="\n")


def ask_for(prompt: str) -> None:
    """Print a question to stderr; the answer follows on the same line."""
    _write(prompt, end="")


def _write(text: str, end: str) -> None:
    # The only place that writes to stderr, so that control characters are always escaped.
    print(as_bytes(text).decode("utf-8"), end=end, file=sys.stderr, flush=True)


def _fitted(text: str) -> list[str]:
    from git_envhist.cli.terminal import (
        all_wrapped,  # loaded late: most errors go to programs
        terminal_columns,  # loaded late: most errors go to programs
    )

    columns = terminal_columns(sys.stderr.fileno())
    return all_wrapped(text.split("\n"), columns) if columns else [text]


def error_object(error: EnvhistError) -> dict[str, object]:
    """Return the object that `--json` prints for an error."""
    from git_envhist.printable_text import escape_invalid  # loaded late: only a failure under --json needs it

    value: dict[str, object] = {
        "code": error.code,
        "message": escape_invalid(error.message),
        "hint": escape_invalid(error.hint) if error.hint else None,
        "status": error.exit_code,
    }
    candidates = getattr(error, "candidates", None)
    if candidates:
        value["candidates"] = [escape_invalid(candidate) for candidate in candidates]
    return {"schema": 1, "error": value}


warned: set[str] = set()
"""The warnings that this command has printed."""


def warn(text: str) -> None:
    """Print a warning."""
    warned.add(text)
    print_error_line(f"warning: {escape(text)}")


def as_defect(failure: Exception, program: str) -> EnvhistError:
    """Return an unexpected exception as an error; its traceback is written to a report file."""
    reason = f"{type(failure).__name__}: {failure}".splitlines()[0]
    if isinstance(failure, NotADirectoryError) and failure.filename:
        message = f"cannot access '{os.fsdecode(failure.filename)}': not a directory"
        return EnvhistError(message, hint="a file is in the place of a directory: move it away")
    if isinstance(failure, FileNotFoundError) and isinstance(failure.filename, str | bytes):
        above = os.path.dirname(os.fsdecode(failure.filename))
        if above and not os.path.lexists(above):
            return EnvhistError(f"the directory '{above}' does not exist any more", hint=MOVED)
    number = errno.ENOMEM if isinstance(failure, MemoryError) else getattr(failure, "errno", None)
    if isinstance(failure, OSError | MemoryError) and number in LIMIT_HINTS:
        return EnvhistError(f"the system refused: {os.strerror(number).lower()}", hint=LIMIT_HINTS[number])
    if isinstance(failure, OSError) and number in REFUSALS:
        place = f" '{os.fsdecode(failure.filename)}'" if isinstance(failure.filename, str | bytes) else ""
        return EnvhistError(
            f"the system refused{place}: {os.strerror(number).lower()}", hint=REFUSALS[number]
        )
    if isinstance(failure, ImportError):
        # Modules are read when a command needs them; the import system hides an error of the disk.
        return EnvhistError(
            f"cannot load a module of git-envhist: {reason.partition(': ')[2]}",
            hint="run the command again; if that fails too, install git-envhist again",
        )
    try:
        place = write_report(failure, program)
    except (OSError, EnvhistError):
        return InternalError(
            f"unexpected failure: '{reason}'", hint="run it with GIT_ENVHIST_TRACE=1 to see where"
        )
    return InternalError(
        f"unexpected failure: '{reason}'", hint=f"the details are in '{place}'; please report them"
    )


def write_report(failure: Exception, program: str) -> str:
    """Write the traceback to the user's state directory, and return the path of the file."""
    import traceback  # loaded late: only a defect needs it

    directory = report_directory()
    make_directories(directory)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = os.path.join(directory, f"{stamp}-{os.getpid()}.txt")
    text = "\n".join([*versions(program), "", "".join(traceback.format_exception(failure))])
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path


def report_directory() -> str:
    """Return the directory of the report files."""
    return os.path.join(state_home(), "git-envhist", "reports")


def newest_report() -> str | None:
    """Return the path of the newest report file."""
    try:
        names = os.listdir(report_directory())
    except OSError:
        return None
    return os.path.join(report_directory(), max(names)) if names else None


def versions(program: str) -> list[str]:
    """Return the versions of the program, Python, git and the system, without anything from the environment."""
    from git_envhist._version import __version__  # loaded late: only a defect needs it
    from git_envhist.git.process import run_to_end  # loaded late: only a defect needs it

    try:
        git = run_to_end(["git", "--version"], os.environb).out.decode("ascii", "replace").strip()
    except (EnvhistError, OSError):
        git = "git did not run"
    system = os.uname()
    return [
        f"{' '.join([program, *redacted_command_line(sys.argv[1:])])}, git-envhist {__version__}",
        f"Python {' '.join(sys.version.split())}",
        git,
        f"{system.sysname} {system.release} {system.machine}",
    ]


def redacted_command_line(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that were typed, with paths, names and texts replaced."""
    from git_envhist.cli.subcommands import SUBCOMMANDS  # loaded late: only a defect needs it

    for word in words:
        if word.startswith("--") or word in SUBCOMMANDS:
            yield word.partition("=")[0]
        else:
            yield word[:2] if word.startswith("-") else "…"


def state_home() -> str:
    """Return the user's state directory according to the XDG base directory specification."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    if configured.startswith("/"):
        return configured
    return os.path.join(os.path.expanduser("~"), ".local", "state")


# Hints about the next step, one per command, turned off by `advice.envhist<Word>` as in git. After a success they
# are printed only if standard error is a terminal.

CAPTURE = "envhistCapture"
"""After a capture."""
VERDICT = "envhistVerdict"
"""After a check that did not pass."""
RESTORE = "envhistRestore"
"""How to undo a restore."""
EMPTY = "envhistEmpty"
"""How to take the first snapshot."""
REFUSAL = "envhistRefusal"
"""The option that overrides a refusal."""
ADVICE_KEYS = (CAPTURE, VERDICT, RESTORE, EMPTY, REFUSAL)
FALSE_VALUES = ("false", "no", "off", "0", "")
STDERR = 2


def is_wanted(session: Session, key: str) -> bool:
    """Return whether a hint is wanted: GIT_ADVICE turns off all, the configuration each."""
    if os.environ.get("GIT_ADVICE", "1").lower() in FALSE_VALUES:
        return False
    setting = dict(session.history.repository.read_config()).get(f"advice.{key.lower()}", "true")
    return setting is None or setting.lower() not in FALSE_VALUES


def print_hint(session: Session, key: str, text: str | Callable[[], str]) -> None:
    """Print the hint, and on a terminal how to turn it off."""
    if session.json or not is_wanted(session, key):
        return
    session.output.flush()
    print_error_line(f"hint: {text if isinstance(text, str) else text()}")
    if os.isatty(STDERR):
        print_error_line(f"hint: (turn off: git config --global advice.{key} false)")


def hint_if_empty(session: Session) -> None:
    """Print how to take the first snapshot if the history is empty."""
    if not session.history.log(limit=1) and is_wanted(session, EMPTY):
        from git_envhist.history.resolve import (
            nothing_captured,  # loaded late: most histories are not empty
        )

        print_error_line(f"hint: {nothing_captured(session.history.catalog)}")


def after_capture(session: Session, captured: CaptureResult) -> None:
    """Print a hint after a snapshot was taken."""
    if captured.snapshot is None or captured.verdict is not None or not os.isatty(STDERR):
        return
    back = f"restore it at any time: git envrestore {captured.snapshot.id[:7]}"
    more = "list snapshots: git envlog" if captured.first else "see later changes: git envdiff"
    print_hint(session, CAPTURE, f"{back}; {more}")


def after_verdict(session: Session, verdict: Verdict) -> None:
    """Print a hint after a check failed or gave no result."""
    from git_envhist.history.timeline import by_verdict  # loaded late: most checks pass
    from git_envhist.model import VerdictStatus  # loaded late: most checks pass

    if verdict.status is VerdictStatus.PASS:
        return

    def words() -> str:
        if verdict.status is VerdictStatus.ERROR:
            return "the check gave no result; an earlier result stays valid"
        passed = by_verdict(session.history.catalog.own, VerdictStatus.PASS)
        own = any(one.command == verdict.command for place in passed for one in place.snapshot.verdicts)
        if own:
            return "changes since the check last passed: git envdiff good; first failing snapshot: git envlog bisect"
        return "output of the check: git envlog show; what changed in this snapshot: git envdiff @~1..@"

    print_hint(session, VERDICT, words)


# Warnings about an interrupted restore, printed by commands that only read.


def warn_if_half_way(history: EnvHistory) -> None:
    """Warn that the files are in a state between two snapshots."""
    from git_envhist.worktree.unfinished_restore import (
        has_unfinished_restore,  # loaded late: only a failure needs it
    )

    if has_unfinished_restore(history.repository.state):
        warn(
            "a restore was interrupted: git envrestore --continue finishes it, git envrestore --abort undoes it"
        )


# A note about the running capture of a git hook, which a list does not contain yet.

FRESH = 60.0
"""Seconds after which the mark of a hook means a waiting or failed capture; `git envlog status` prints it."""


def report_running_capture(repository: Repository) -> None:
    """Print a note if the capture of the last `git commit` is still running."""
    if not os.path.exists(os.path.join(repository.state, "hooks", "pending")):
        return
    from git_envhist.integrations.git_hooks import (  # loaded late: most lists have no running capture
        hooks_state,
        read_outcomes,
        read_pending,
    )

    place = hooks_state(repository.state)
    mark = read_pending(place)
    if mark is None or time.time() - mark.at > FRESH:
        return
    last = read_outcomes(place)[-1:]
    if last and last[0].result == "waiting" and last[0].at >= mark.at:
        print_error_line(f"note: {last[0].message}")
    else:
        print_error_line(f"note: a capture is running ({mark.event}); it is not in this list yet")
