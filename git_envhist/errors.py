"""The tree of errors. Each has an exit status, a code for programs and a hint for people."""

from __future__ import annotations

DAMAGE = ("index file ", "packfile ", "bad object", "reference broken", "loose object", "broken ref")
"""Parts of git's messages about a damaged repository."""
LISTED = 20
"""The number of candidates in a hint; the error itself has all of them."""


class EnvhistError(Exception):
    """Base of all errors of this package: one line about what failed, and a hint."""

    exit_code = 128
    code = "failed"
    usual_hint: str | None = "GIT_ENVHIST_TRACE=1 shows each step"
    """The hint if the raising code gives none."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.usual_hint


class UsageError(EnvhistError):
    """The arguments of the command line are not valid."""

    exit_code = 129
    code = "usage"
    usual_hint = "-h lists the options"


class Refused(EnvhistError):
    """A guard refused the operation; nothing was changed."""

    exit_code = 3
    code = "refused"


class SnapshotNotFound(EnvhistError):
    """No snapshot, name or timeline matches a revision."""

    exit_code = 4
    code = "no-such-snapshot"

    def __init__(self, revision: str, *, hint: str | None = None, message: str | None = None) -> None:
        super().__init__(
            message or f"no snapshot matches '{revision}'",
            hint=hint or "'git envlog --no-fold' lists every snapshot of this timeline",
        )
        self.revision = revision


class AmbiguousRevision(EnvhistError):
    """A revision matches more than one snapshot."""

    exit_code = 4
    code = "ambiguous"

    def __init__(self, revision: str, candidates: tuple[str, ...]) -> None:
        listed = candidates[:LISTED]
        if len(candidates) > LISTED:
            listed += (f"and {len(candidates) - LISTED} more",)
        super().__init__(f"'{revision}' matches more than one snapshot", hint="one of: " + "; ".join(listed))
        self.revision = revision
        self.candidates = candidates


class NotARepository(EnvhistError):
    """There is no git repository with a working tree."""

    code = "not-a-repository"
    usual_hint = "git init, or without git: git envlog init"


class GitFailed(EnvhistError):
    """A git command failed; the message is git's own."""

    code = "git-failed"
    usual_hint = "GIT_ENVHIST_TRACE=1 shows which git command failed"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        if hint is None and any(sign in message for sign in DAMAGE):
            hint = "'git envlog fsck' lists the damage and what can be repaired"
        super().__init__(_in_one_line(message), hint=hint)


class GitKilled(GitFailed):
    """A git process was killed before it ended. Its output is incomplete and must be ignored.

    Code that handles other failures of git as an answer (damage, nothing found) must not handle this one.
    """

    usual_hint = "run the command again"

    def __init__(self, signal_number: int, what: str = "git was") -> None:
        super().__init__(f"{what} ended by signal {signal_number}", hint=self.usual_hint)


class UnfinishedRestore(EnvhistError):
    """A restore was interrupted. Nothing is lost; only finishing or aborting it may change the environment now."""

    code = "restore-left"

    def __init__(self, message: str = "a restore was interrupted", signal_number: int = 0) -> None:
        super().__init__(
            message,
            hint="'git envrestore --continue' finishes it, 'git envrestore --abort' undoes it",
        )
        if signal_number:
            self.exit_code = 128 + signal_number


FSCK_HINT = "'git envlog fsck' lists what else is missing or damaged"


class Damaged(EnvhistError):
    """Stored bytes are not what they must be."""

    code = "damaged"
    usual_hint = "'git envlog fsck' lists the damaged snapshots"


class FileUnreadable(EnvhistError):
    """A file that the user named cannot be read."""

    code = "cannot-read"


class WorkingTreeGone(EnvhistError):
    """The working tree was moved or removed during a capture."""

    code = "no-such-directory"
    usual_hint = "run the command again in its new place"

    def __init__(
        self,
        message: str = "the working tree was moved or removed: nothing was captured",
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)


class StorageFull(EnvhistError):
    """There is no free space to write; nothing was changed."""

    code = "no-space"
    usual_hint = "free some space, then run the command again"


class SealingError(EnvhistError):
    """A sealed file cannot be opened or created."""

    code = "sealing"
    usual_hint = "'git envlog key' lists your keys"


class KeyMissing(SealingError):
    """The key of a sealed file is missing here."""


class Interrupted(EnvhistError):
    """The command was stopped by a signal; no step is half done."""

    code = "interrupted"
    usual_hint = None

    def __init__(
        self, signal_number: int, what: str = "nothing was changed", hint: str | None = None
    ) -> None:
        super().__init__(f"stopped: {what}", hint=hint)
        self.exit_code = 128 + signal_number


def in_words(error: Exception) -> str:
    """Return the text of an error; for an OSError without its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    place = error.filename
    if isinstance(place, bytes):
        place = place.decode("utf-8", "surrogateescape")
    return error.strerror.lower() + (f": '{place}'" if isinstance(place, str) else "")


def _in_one_line(message: str) -> str:
    """Return the first and the last line of git's message; the lines between repeat the same for other files."""
    lines = list(dict.fromkeys(filter(None, map(str.strip, message.splitlines()))))
    first_and_last = [lines[0], lines[-1]] if len(lines) > 2 else lines
    return "; ".join(line.removeprefix("fatal: ").removeprefix("error: ") for line in first_and_last)
