"""What a git said that failed on its way to another repository: one line that says why, and what to do about it."""

from __future__ import annotations

import re
from typing import Protocol

from git_envhist.errors import EnvhistError
from git_envhist.git.limits import NO_MEMORY, DecompressionBomb
from git_envhist.git.process import GitResult
from git_envhist.model.storage import without_password

NO_ROOM = ("No space left on device", "File too large", "Disk quota exceeded")
"""The second is said where all but what is kept free was taken."""
MAX_LINE = 400
NOT_TOGETHER = b"does not support --atomic push"


PROGRESS = re.compile(
    r"(?:remote: )?(?:[A-Z][a-z]+(?: [a-z]+)*: +[0-9].*|Total [0-9]+ \(delta .*)|From .*|[ *+=-] ?\[?.* -> .*"
)
"""How far git is, there or here, and what has come."""


class Reached(Protocol):
    """Another repository."""

    @property
    def name(self) -> str: ...

    @property
    def shown(self) -> str:
        """Its address, without what a password could be."""


class RemoteFailed(EnvhistError):
    """The other side, or the way to it, failed; its own words are the message."""

    code = "remote-failed"
    usual_hint = "whether git itself gets there: git ls-remote <remote>"

    @property
    def said(self) -> bool:
        """Whether the hint is what the other side said."""
        return self.hint != self.usual_hint


def why_it_failed(remote: Reached, done: GitResult) -> RemoteFailed:
    """What git said of it: the line that tells why, and below it what the other side said."""
    told = done.err.decode("utf-8", "replace").splitlines()
    lines = [shortened for line in told if (shortened := line.strip()[:MAX_LINE])]
    lines = [line for line in lines if not PROGRESS.fullmatch(line)]
    fatal = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    said = [line for line in lines if line not in fatal and not line.startswith("hint: ")][:10]
    why = fatal[0].partition(": ")[2] if fatal else f"git ended with status {done.status}"
    message = f"'{remote.name}' ({remote.shown}): {without_password(why)}"
    if any(words in why for words in NO_ROOM) and not said:
        return RemoteFailed(
            message, hint="make room on this disk, and type it again: it goes on where it stood"
        )
    return RemoteFailed(message, hint="\n".join(map(without_password, said)) or None)


class RemoteTimeout(RemoteFailed):
    """It was waited for long enough."""


def says_nothing(remote: Reached, seconds: float, verb: str) -> RemoteTimeout:
    """The other side says nothing any more to a push, or a fetch."""
    return RemoteTimeout(
        f"'{remote.name}' ({remote.shown}) has said nothing for {seconds:,.0f} s",
        hint="type it again: it goes on where it stood; "
        f"to wait longer: git -c envhist.{verb}Timeout=1h envlog {verb}",
    )


def why_nothing_came(remote: Reached, done: GitResult) -> EnvhistError:
    """The same of a git that was held to bounds."""
    if any(words in done.err for words in NO_MEMORY):
        return too_much(remote, "takes more memory to read than it may")
    return why_it_failed(remote, done)


def too_much(remote: Reached, what: str) -> DecompressionBomb:
    """It sends what would unfold into far more than any history of ours."""
    return DecompressionBomb(
        f"what '{remote.name}' ({remote.shown}) sends {what}",
        hint="only where you trust whoever runs it: git -c envhist.fetchMemory=16g envlog fetch",
    )
