"""Convert the output of a failed git push or fetch into an error: one line with the reason, and a hint."""

from __future__ import annotations

import re
from typing import Protocol

from git_envhist.errors import EnvhistError
from git_envhist.git.limits import NO_MEMORY, DecompressionBomb
from git_envhist.git.process import GitResult
from git_envhist.model.sharing import without_password

DISK_FULL = ("No space left on device", "File too large", "Disk quota exceeded")
"""Error texts for a full disk; git prints the second if only the reserved space is free."""
MAX_LINE = 400
NO_ATOMIC_PUSH = b"does not support --atomic push"


PROGRESS = re.compile(
    r"(?:remote: )?(?:[A-Z][a-z]+(?: [a-z]+)*: +[0-9].*|Total [0-9]+ \(delta .*)|From .*|[ *+=-] ?\[?.* -> .*"
)
"""Progress of git on either side, and the list of updated refs."""


class NamedRemote(Protocol):
    """The name of a remote and its address without a password, for error messages."""

    @property
    def name(self) -> str: ...

    @property
    def shown(self) -> str:
        """Its address without a password."""


class RemoteFailed(EnvhistError):
    """The remote or the connection to it failed; git's message gives the reason."""

    code = "remote-failed"
    usual_hint = "check that git can reach it: git ls-remote <remote>"

    @property
    def from_remote(self) -> bool:
        """Whether the hint is output of the remote."""
        return self.hint != self.usual_hint


def remote_error(remote: NamedRemote, done: GitResult) -> RemoteFailed:
    """Return the error for a failed git: the line with the reason, and as a hint the other output of the remote."""
    output = done.err.decode("utf-8", "replace").splitlines()
    lines = [shortened for line in output if (shortened := line.strip()[:MAX_LINE])]
    lines = [line for line in lines if not PROGRESS.fullmatch(line)]
    fatal = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    from_remote = [line for line in lines if line not in fatal and not line.startswith("hint: ")][:10]
    why = fatal[0].partition(": ")[2] if fatal else f"git ended with status {done.status}"
    message = f"'{remote.name}' ({remote.shown}): {without_password(why)}"
    if any(words in why for words in DISK_FULL) and not from_remote:
        return RemoteFailed(message, hint="free space on this disk, and run the command again: it continues")
    return RemoteFailed(message, hint="\n".join(map(without_password, from_remote)) or None)


class RemoteTimeout(RemoteFailed):
    """The remote sent nothing for longer than the timeout."""


def no_output_error(remote: NamedRemote, seconds: float, verb: str) -> RemoteTimeout:
    """Return the error for a push or fetch to which the remote stopped responding."""
    return RemoteTimeout(
        f"'{remote.name}' ({remote.shown}) sent nothing for {seconds:,.0f} s",
        hint="run the command again: it continues where it stopped; "
        f"for a longer timeout: git -c envhist.{verb}Timeout=1h envlog {verb}",
    )


def fetch_error(remote: NamedRemote, done: GitResult) -> EnvhistError:
    """Return the error for a failed git that ran under memory limits."""
    if any(words in done.err for words in NO_MEMORY):
        return bomb_error(remote, "needs more memory to read than allowed")
    return remote_error(remote, done)


def bomb_error(remote: NamedRemote, problem: str) -> DecompressionBomb:
    """Return the error for data that would unpack to far more than any history contains."""
    return DecompressionBomb(
        f"the data that '{remote.name}' ({remote.shown}) sends {problem}",
        hint="only if you trust the owner of the remote: git -c envhist.fetchMemory=16g envlog fetch",
    )
