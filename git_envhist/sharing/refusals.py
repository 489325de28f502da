"""What a push comes to, and why one is refused before anything is sent."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from git_envhist.errors import Refused
from git_envhist.model.sharing import FoundToken, PushResult, Remote
from git_envhist.store.remotefailures import RemoteFailed
from git_envhist.store.remoteload import OutgoingObject, shown_place

LISTED = 10
WORDS = re.compile(r"(?:message|note) [0-9a-f]{7}")
"""How a message and a note are named among what would leave."""


class FirstPush(Refused):
    """What leaves for a new place is told first."""

    code = "first-push"

    def __init__(self, planned: PushResult, typed: Sequence[str] = ()) -> None:
        """`typed`: the words that said where to, and what."""
        remote = planned.remote
        super().__init__(
            f"the first push to '{remote.name}' ({remote.shown}): nothing was sent",
            hint=f"if all of this may leave: {shlex.join(['git', 'envlog', 'push', '--yes', *typed])}",
        )
        self.planned = planned


class NotAgreed(Refused):
    """Something new would leave for a place where other things may."""

    code = "not-agreed"

    def __init__(self, planned: PushResult, typed: Sequence[str] = ()) -> None:
        """`typed`: the words that said where to, and what."""
        remote = planned.remote
        super().__init__(
            f"new since the last agreed push to '{remote.name}', nothing was sent: {first_few(planned.new)}",
            hint=f"if all of this may leave: {shlex.join(['git', 'envlog', 'push', '--yes', *typed])}\n"
            "leave it out of the next captures: .envhistignore; seal it: git config --add envhist.secret '<path>'",
        )
        self.planned = planned


class Diverged(Refused):
    """Other moments stand there under the same name."""

    code = "diverged"

    def __init__(self, timeline: str, remote: Remote) -> None:
        super().__init__(
            f"'{remote.name}' has other moments of '{timeline}': nothing was sent, both are kept",
            hint=f"see them: git envlog fetch {remote.name}, git envlog {remote.name}/{timeline}\n"
            f"go on under another name: git config envhist.timeline {timeline}-2\n"
            f"let theirs go: git envlog push {remote.name} --delete {timeline}",
        )


class TokensFound(Refused):
    """Tokens would leave in the clear."""

    code = "holds-tokens"

    def __init__(self, tokens: Sequence[FoundToken], done: str = "sent") -> None:
        paths = sorted({os.fsdecode(token.path) for token in tokens})
        told = first_few([_told(token) for token in tokens])
        in_words = [path for path in paths if WORDS.fullmatch(path)]
        if in_words == paths:
            super().__init__(
                f"tokens would leave in the clear, nothing was {done}: {told}",
                hint=f"forget a moment: git envlog drop <id>\nlet it leave all the same: --allow '{paths[0]}'",
            )
            return
        paths = [path for path in paths if path not in in_words]
        super().__init__(
            f"tokens would leave in the clear, nothing was {done}: {told}",
            hint=f"seal it from the next capture on: git config --add envhist.secret '{paths[0]}'\n"
            f"erase what was captured: git envlog purge '{paths[0]}'; leave it out: .envhistignore\n"
            f"let it leave all the same: --allow '{paths[0]}'",
        )


class TooLarge(Refused):
    """Objects that hosts do not take."""

    code = "too-large"

    def __init__(self, found: Sequence[OutgoingObject], largest: int) -> None:
        paths = [os.fsdecode(shown_place(one)) for one in found]
        told = first_few([f"'{path}' ({one.size:,} bytes)" for path, one in zip(paths, found, strict=True)])
        super().__init__(
            f"more than hosts take in one object ({largest:,} bytes), nothing was sent: {told}",
            hint=f"send it all the same: --allow '{paths[0]}'; for good: git config envhist.largestObject 2g",
        )


def _told(token: FoundToken) -> str:
    return f"'{os.fsdecode(token.path)}' ({token.kind.replace('`', '')})"


def first_few(told: Sequence[str]) -> str:
    """The first of many, in one line."""
    more = f" and {len(told) - LISTED} more" if len(told) > LISTED else ""
    return ", ".join(told[:LISTED]) + more


def rejected(remote: Remote, lines: Sequence[str], failed: RemoteFailed) -> RemoteFailed:
    """What it means that the other side did not take some refs: `lines` of git, and what else it said."""
    # Of refs that move together or not at all, one was refused, and the others because of it.
    lines = [line for line in lines if "atomic" not in line] or lines
    refs = [line.split("\t")[1].partition(":")[2] for line in lines if line.count("\t") >= 2]
    why = lines[0].split("\t")[-1]
    hint = (
        "it moved there meanwhile: push again" if "stale info" in why or "fetch first" in why else failed.hint
    )
    return RemoteFailed(
        f"'{remote.name}' ({remote.shown}) does not take '{refs[0] if refs else ''}': {why}", hint=hint
    )
