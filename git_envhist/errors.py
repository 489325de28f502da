"""The tree of errors: each carries its exit status, a code for machines and a hint for people."""

from __future__ import annotations

DAMAGE = ("index file ", "packfile ", "bad object", "reference broken", "loose object", "broken ref")
"""What git says of a repository that is damaged."""
LISTED = 20
"""So many candidates stand in a hint; the error itself carries all of them."""


class EnvhistError(Exception):
    """Anything this package tells its caller about: one line that says what failed, and what to type next."""

    exit_code = 128
    code = "failed"
    usual_hint: str | None = "GIT_ENVHIST_TRACE=1 shows each step of it"
    """What to type next, where the place that fails knows nothing better."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.usual_hint


class UsageError(EnvhistError):
    """The words of the command line do not make a command."""

    exit_code = 129
    code = "usage"
    usual_hint = "-h lists the options"


class Refused(EnvhistError):
    """A guard said no; nothing was changed."""

    exit_code = 3
    code = "refused"


class SnapshotNotFound(EnvhistError):
    """No snapshot, name or timeline is meant by these words."""

    exit_code = 4
    code = "no-such-snapshot"

    def __init__(self, revision: str, *, hint: str | None = None, message: str | None = None) -> None:
        super().__init__(
            message or f"no snapshot matches '{revision}'", hint=hint or "'git envlog' lists every snapshot"
        )
        self.revision = revision


class AmbiguousRevision(EnvhistError):
    """The words mean more than one snapshot; the candidates are listed."""

    exit_code = 4
    code = "ambiguous"

    def __init__(self, revision: str, candidates: tuple[str, ...]) -> None:
        told = candidates[:LISTED]
        if len(candidates) > LISTED:
            told += (f"and {len(candidates) - LISTED} more",)
        super().__init__(
            f"more than one snapshot is meant by '{revision}'", hint="one of: " + "; ".join(told)
        )
        self.revision = revision
        self.candidates = candidates


class NotARepository(EnvhistError):
    """There is no git repository with a working tree here."""

    code = "not-a-repository"
    usual_hint = "git init, or without git: git envlog init"


class GitFailed(EnvhistError):
    """A git command that had to succeed did not; its own words are the message."""

    code = "git-failed"
    usual_hint = "GIT_ENVHIST_TRACE=1 shows which command of git that was"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        if hint is None and any(sign in message for sign in DAMAGE):
            hint = "'git envlog fsck' says what is damaged, and what can be mended"
        super().__init__(_in_one_line(message), hint=hint)


class GitKilled(GitFailed):
    """A git was ended by somebody else before it had said all: nothing may be decided by what it did say.

    Whoever takes a failure for an answer (damage, nothing there) does not mean this one.
    """

    usual_hint = "run the command again"

    def __init__(self, signal_number: int, what: str = "a git that was asked has been") -> None:
        super().__init__(f"{what} ended by signal {signal_number}", hint=self.usual_hint)


class UnfinishedRestore(EnvhistError):
    """A restore was broken off; nothing is lost, and nothing else may change the environment before it is ended."""

    code = "restore-left"

    def __init__(self, message: str = "a restore was broken off here", signal_number: int = 0) -> None:
        super().__init__(
            message,
            hint="'git envrestore --continue' finishes it, 'git envrestore --abort' takes it back",
        )
        if signal_number:
            self.exit_code = 128 + signal_number


class Damaged(EnvhistError):
    """Stored bytes are not what they must be."""

    code = "damaged"
    usual_hint = "'git envlog fsck' tells which moments are whole"


class WorkingTreeGone(EnvhistError):
    """The working tree was moved or removed during a capture."""

    code = "no-such-directory"
    usual_hint = "run the command again where it is now"

    def __init__(
        self,
        message: str = "the working tree was moved or removed meanwhile: nothing was captured",
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)


class StorageFull(EnvhistError):
    """There is no room to write; nothing was changed."""

    code = "no-space"
    usual_hint = "make room, then type it again"


class SealingError(EnvhistError):
    """A sealed file cannot be opened or made."""

    code = "sealing"
    usual_hint = "'git envlog key' shows which keys are here"


class Interrupted(EnvhistError):
    """Stopped by a signal; nothing is half done."""

    code = "interrupted"
    usual_hint = None

    def __init__(
        self, signal_number: int, what: str = "nothing was changed", hint: str | None = None
    ) -> None:
        super().__init__(f"stopped: {what}", hint=hint)
        self.exit_code = 128 + signal_number


def in_words(error: Exception) -> str:
    """Return what an error says, without the number of an error of the system."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    place = error.filename
    if isinstance(place, bytes):
        place = place.decode("utf-8", "surrogateescape")
    return error.strerror.lower() + (f": '{place}'" if isinstance(place, str) else "")


def _in_one_line(message: str) -> str:
    """What git said first, and last: between them it says the same of one file after the other."""
    lines = list(dict.fromkeys(filter(None, map(str.strip, message.splitlines()))))
    first_and_last = [lines[0], lines[-1]] if len(lines) > 2 else lines
    return "; ".join(line.removeprefix("fatal: ").removeprefix("error: ") for line in first_and_last)
