"""How a failure is told: one line that says what, one that says what to type next, and never a traceback."""

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
from git_envhist.cli.terminal import SPELLED_PLAINLY, as_bytes, shows_symbols
from git_envhist.errors import EnvhistError, Interrupted, Refused
from git_envhist.text import escape

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.command import Session
    from git_envhist.git.repository import Repository
    from git_envhist.model import CaptureResult, Verdict


OUT_OF = {
    errno.EMFILE: "raise the limit: ulimit -n 1024",
    errno.ENFILE: "close some programs, or raise fs.file-max",
    errno.ENOMEM: "close some programs, or raise the limit: ulimit -v",
    errno.EAGAIN: "close some programs, or raise the limit: ulimit -u",
}
"""What the system may run out of, and no program of ours can help."""
AGAIN = "type it again: it goes on where it stood"


LOOK_AFTER_THE_DISK = "see whether the disk or the server that holds it fails, then run the command again"
MAKE_ROOM = "make room there (or raise the quota), then run the command again"
MOVED = "it was moved or removed: run the command again in its new place"
ALLOW = "a sandbox, another owner or a read-only file system closes it: allow it, then run the command again"
REFUSALS = {
    **dict.fromkeys(
        (errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT), LOOK_AFTER_THE_DISK
    ),
    **dict.fromkeys((errno.ESTALE, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EUCLEAN), LOOK_AFTER_THE_DISK),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), MAKE_ROOM),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), ALLOW),
    **dict.fromkeys((errno.EINTR, errno.EBUSY, errno.ETXTBSY, errno.ENOLCK, errno.EDEADLK), AGAIN),
}
"""Errors of the system at any call: a failure of the machine, not a defect of this program. With hints."""


class SignalReceived(KeyboardInterrupt):
    """A signal that asks us to end, told to the code that runs in the same way as Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def stoppable(what: str, hint: str) -> Iterator[None]:
    """Whoever stops what follows is told what became of it."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise Interrupted(getattr(stopped, "number", signal.SIGINT), what, hint) from stopped


class InternalError(EnvhistError):
    """Something failed that must not fail."""

    code = "defect"


_hushed = False


def set_quiet() -> None:
    """From here on nothing is said beside the answer but warnings, and why it failed."""
    global _hushed  # noqa: PLW0603 - one program, one conversation
    _hushed = True


def is_hushed() -> bool:
    return _hushed


def report_error(error: EnvhistError, output: Output, *, as_json: bool) -> int:
    """Say what failed, to a person or to a program, and return the status to end with."""
    global _hushed  # noqa: PLW0603 - likewise
    _hushed = False
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
    """Whether the hint of a refusal was switched off; a failure is told in full whatever is configured."""
    from git_envhist.git.process import SAFE_GIT, spawn  # loaded late: likewise

    if os.environ.get("GIT_ADVICE", "1").lower() in FALSE_VALUES:
        return True
    try:
        asked = spawn([*SAFE_GIT, "config", "--type=bool", "--get", f"advice.{REFUSAL}"], os.environb)
    except (EnvhistError, OSError):
        return False
    return asked.out.strip() == b"false"


def print_error_line(line: str) -> None:
    """A line on stderr, as wide as the terminal; where that is full or gone, the exit status says it alone."""
    if _hushed and not line.startswith("warning: "):
        return
    with suppress(OSError):
        terminal = sys.stderr.isatty()
        if not shows_symbols(os.environ, terminal=terminal):
            line = line.translate(SPELLED_PLAINLY)
        _write("\n".join(_fitted(line)) if terminal else line, end="\n")


def ask_for(prompt: str) -> None:
    """Write a question to stderr; the answer follows on the same line."""
    _write(prompt, end="")


def _write(text: str, end: str) -> None:
    # The only place that writes to stderr: no text brings a control character along.
    print(as_bytes(text).decode("utf-8"), end=end, file=sys.stderr, flush=True)


def _fitted(text: str) -> list[str]:
    from git_envhist.cli.terminal import (
        all_wrapped,  # loaded late: likewise
        terminal_columns,  # loaded late: most errors go to programs
    )

    columns = terminal_columns(sys.stderr.fileno())
    return all_wrapped(text.split("\n"), columns) if columns else [text]


def error_object(error: EnvhistError) -> dict[str, object]:
    """What `--json` prints instead of an answer."""
    from git_envhist.text import escape_invalid  # loaded late: only a failure under --json needs it

    told: dict[str, object] = {
        "code": error.code,
        "message": escape_invalid(error.message),
        "hint": escape_invalid(error.hint) if error.hint else None,
        "status": error.exit_code,
    }
    candidates = getattr(error, "candidates", None)
    if candidates:
        told["candidates"] = [escape_invalid(candidate) for candidate in candidates]
    return {"schema": 1, "error": told}


warned: set[str] = set()
"""The warnings that this command has printed."""


def warn(text: str) -> None:
    """Print one line about something that did not stop the command."""
    warned.add(text)
    print_error_line(f"warning: {escape(text)}")


def as_defect(failure: Exception, program: str) -> EnvhistError:
    """An unexpected exception as one line; where it came from is kept in a file for a report."""
    said = f"{type(failure).__name__}: {failure}".splitlines()[0]
    if isinstance(failure, NotADirectoryError) and failure.filename:
        message = f"cannot access '{os.fsdecode(failure.filename)}': not a directory"
        return EnvhistError(message, hint="something stands in the place of a directory: move it away")
    if isinstance(failure, FileNotFoundError) and isinstance(failure.filename, str | bytes):
        above = os.path.dirname(os.fsdecode(failure.filename))
        if above and not os.path.lexists(above):
            return EnvhistError(f"the directory '{above}' is gone", hint=MOVED)
    number = errno.ENOMEM if isinstance(failure, MemoryError) else getattr(failure, "errno", None)
    if isinstance(failure, OSError | MemoryError) and number in OUT_OF:
        return EnvhistError(f"the system refused: {os.strerror(number).lower()}", hint=OUT_OF[number])
    if isinstance(failure, OSError) and number in REFUSALS:
        place = f" '{os.fsdecode(failure.filename)}'" if isinstance(failure.filename, str | bytes) else ""
        return EnvhistError(
            f"the system refused{place}: {os.strerror(number).lower()}", hint=REFUSALS[number]
        )
    if isinstance(failure, ImportError):
        # The files of a module are read when a command needs them; the import system hides the error of the disk.
        return EnvhistError(
            f"a part of this program cannot be loaded: {said.partition(': ')[2]}",
            hint="run the command again; if that fails too, install git-envhist again",
        )
    try:
        place = write_report(failure, program)
    except OSError:
        return InternalError(f"unexpected failure: '{said}'", hint="GIT_ENVHIST_TRACE=1 shows where")
    return InternalError(
        f"unexpected failure: '{said}'", hint=f"the details are in '{place}'; please report them"
    )


def write_report(failure: Exception, program: str) -> str:
    """Keep the traceback in the user's state directory; returns the file's path."""
    import traceback  # loaded late: only a defect needs it

    directory = reports()
    os.makedirs(directory, mode=0o700, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = os.path.join(directory, f"{stamp}-{os.getpid()}.txt")
    text = "\n".join([*versions(program), "", "".join(traceback.format_exception(failure))])
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path


def reports() -> str:
    """Where what is known of unexpected failures is kept."""
    return os.path.join(state_home(), "git-envhist", "reports")


def newest_report() -> str | None:
    """The last unexpected failure that was kept."""
    try:
        names = os.listdir(reports())
    except OSError:
        return None
    return os.path.join(reports(), max(names)) if names else None


def versions(program: str) -> list[str]:
    """What a report has to say of where it comes from; nothing of the environment's own contents."""
    from git_envhist._version import __version__  # loaded late: only a defect needs it
    from git_envhist.git.process import spawn  # loaded late: likewise

    try:
        git = spawn(["git", "--version"], os.environb).out.decode("ascii", "replace").strip()
    except (EnvhistError, OSError):
        git = "git could not be asked"
    system = os.uname()
    return [
        f"{' '.join([program, *redacted_command_line(sys.argv[1:])])}, git-envhist {__version__}",
        f"Python {' '.join(sys.version.split())}",
        git,
        f"{system.sysname} {system.release} {system.machine}",
    ]


def redacted_command_line(words: Sequence[str]) -> Iterator[str]:
    """What was typed, without what it was about: subcommand and options; a path, a name or a reason is nobody's."""
    from git_envhist.cli.subcommands import SUBCOMMANDS  # loaded late: only a defect needs it

    for word in words:
        if word.startswith("--") or word in SUBCOMMANDS:
            yield word.partition("=")[0]
        else:
            yield word[:2] if word.startswith("-") else "…"


def state_home() -> str:
    """The directory for a user's state, as the XDG base directories have it."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    if configured.startswith("/"):
        return configured
    return os.path.join(os.path.expanduser("~"), ".local", "state")


# What to type next: one hint, which `advice.envhist<Word>` switches off, as with git's own.
#
# After what went well it is said to a person only, where standard error is a terminal: a script has no use for it.

CAPTURE = "envhistCapture"
"""After a capture."""
VERDICT = "envhistVerdict"
"""After a check that did not pass."""
RESTORE = "envhistRestore"
"""How to come back from a restore."""
EMPTY = "envhistEmpty"
"""How to take the first snapshot."""
REFUSAL = "envhistRefusal"
"""The option that overrides what was refused."""
ADVICE_KEYS = (CAPTURE, VERDICT, RESTORE, EMPTY, REFUSAL)
FALSE_VALUES = ("false", "no", "off", "0", "")
STDERR = 2


def is_wanted(session: Session, key: str) -> bool:
    """Whether a hint is to be given: GIT_ADVICE for all of them, the configuration for each."""
    if os.environ.get("GIT_ADVICE", "1").lower() in FALSE_VALUES:
        return False
    said = dict(session.history.repository.read_config()).get(f"advice.{key.lower()}", "true")
    return said is None or said.lower() not in FALSE_VALUES


def print_hint(session: Session, key: str, text: str | Callable[[], str]) -> None:
    """Give the hint, and say how to be rid of it."""
    if session.json or not is_wanted(session, key):
        return
    session.output.flush()
    print_error_line(f"hint: {text if isinstance(text, str) else text()}")
    if os.isatty(STDERR):
        print_error_line(f"hint: (not again: git config --global advice.{key} false)")


def hint_if_empty(session: Session) -> None:
    """How to begin, where a list is empty because nothing was captured."""
    if not session.history.log(limit=1) and is_wanted(session, EMPTY):
        from git_envhist.history.resolve import (
            nothing_captured,  # loaded late: nearly every history holds something
        )

        print_error_line(f"hint: {nothing_captured(session.history.catalog)}")


def after_capture(session: Session, captured: CaptureResult) -> None:
    """Where one can go from a moment that was just taken."""
    if captured.snapshot is None or captured.verdict is not None or not os.isatty(STDERR):
        return
    back = f"back to it at any time: git envrestore {captured.snapshot.id[:7]}"
    more = "'git envlog' lists the moments" if captured.first else "what changes from here: git envdiff"
    print_hint(session, CAPTURE, f"{back}; {more}")


def after_verdict(session: Session, verdict: Verdict) -> None:
    """How to find what broke it."""
    from git_envhist.history.timeline import by_verdict  # loaded late: most checks pass
    from git_envhist.model import VerdictStatus  # loaded late: likewise

    if verdict.status is VerdictStatus.PASS:
        return

    def words() -> str:
        if by_verdict(session.history.catalog.own, VerdictStatus.PASS):
            return "what changed since it last passed: git envdiff good; which moment broke it: git envlog bisect"
        return "what it said: git envlog show; what changed before: git envdiff @~1..@"

    print_hint(session, VERDICT, words)


# What a restore left half way, told by commands that only look.


def warn_if_half_way(history: EnvHistory) -> None:
    """Say so: what is here is neither of two moments, and whoever changes it first would not know."""
    from git_envhist.worktree.unfinished_restore import (
        has_unfinished_restore,  # loaded late: only a failure needs it
    )

    if has_unfinished_restore(history.repository.state):
        warn(
            "a restore was interrupted: git envrestore --continue finishes it, git envrestore --abort undoes it"
        )


# What a list cannot hold yet: the capture that a hook of git has just asked for.

FRESH = 60.0
"""A mark older than that tells of a capture that waits or was given up: `git envlog status` says which."""


def report_running_capture(repository: Repository) -> None:
    """Who looks right after `git commit` is told that its moment comes."""
    if not os.path.exists(os.path.join(repository.state, "hooks", "pending")):
        return
    from git_envhist.integrations.git_hooks import (  # loaded late: as said
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
        print_error_line(f"note: a capture is under way ({mark.event}), and is not in this list yet")
