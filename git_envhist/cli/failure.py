"""How a failure is told: one line that says what, one that says what to type next, and never a traceback."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from git_envhist.cli.output import Output
from git_envhist.cli.terminal import SPELLED_PLAINLY, as_bytes, escape, shows_symbols
from git_envhist.errors import EnvhistError, Interrupted, Refused

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
MOVED = "it was moved or removed meanwhile: run the command again where it is now"
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
        from git_envhist.cli.jsontext import dump  # loaded late: only a failure under --json needs it

        output.line(dump(error_object(error)))
    else:
        print_error_line(f"error: {escape(error.message)}")
        if error.hint and not (isinstance(error, Refused) and _is_unwanted()):
            for line in error.hint.split("\n"):
                print_error_line(f"hint: {escape(line)}")
    return error.exit_code


def _is_unwanted() -> bool:
    """Whether the hint of a refusal was switched off; a failure is told in full whatever is configured."""
    from git_envhist.cli.advice import NO, REFUSAL  # loaded late: only a refusal needs it
    from git_envhist.store.git import SAFE_GIT, spawn  # loaded late: likewise

    if os.environ.get("GIT_ADVICE", "1").lower() in NO:
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
    from git_envhist.cli.terminal import terminal_columns  # loaded late: most errors go to programs
    from git_envhist.cli.wrapping import all_wrapped  # loaded late: likewise

    columns = terminal_columns(sys.stderr.fileno())
    return all_wrapped(text.split("\n"), columns) if columns else [text]


def error_object(error: EnvhistError) -> dict[str, object]:
    """What `--json` prints instead of an answer."""
    from git_envhist.cli.terminal import escape_invalid  # loaded late: only a failure under --json needs it

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


def warn(text: str) -> None:
    """One line about something that did not stand in the way."""
    print_error_line(f"warning: {escape(text)}")


def as_defect(failure: Exception, program: str) -> EnvhistError:
    """An unexpected exception as one line; where it came from is kept in a file for a report."""
    said = f"{type(failure).__name__}: {failure}".splitlines()[0]
    if isinstance(failure, NotADirectoryError) and failure.filename:
        message = f"the system refused '{os.fsdecode(failure.filename)}': not a directory"
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
    from git_envhist.store.git import spawn  # loaded late: likewise

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
