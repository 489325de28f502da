"""The hooks that git runs: which there are, who put them there, and when one is another than it was.

They stand in the repository's own directory, or wherever `core.hooksPath` leads, and most often in no snapshot. What
they do is not told: in the place of a hook's text stands a keyed fingerprint of it. One that may not be executed is
none, to git as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from git_envhist.model import Fact
from git_envhist.probes.base import Keyed, ProbeTarget

PROBE = "hook"
NAMES = frozenset(
    (
        *(
            "applypatch-msg",
            "pre-applypatch",
            "post-applypatch",
            "pre-commit",
            "pre-merge-commit",
            "post-commit",
        ),
        *(
            "prepare-commit-msg",
            "commit-msg",
            "pre-rebase",
            "post-checkout",
            "post-merge",
            "pre-push",
            "pre-receive",
        ),
        *(
            "update",
            "post-receive",
            "post-update",
            "reference-transaction",
            "push-to-checkout",
            "pre-auto-gc",
        ),
        *("post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change", "proc-receive"),
    )
)
"""What git calls; other files beside them are theirs."""
MAKERS = {
    b"git-envhist": "git-envhist",
    b"husky": "husky",
    b"pre-commit.com": "pre-commit",
    b"lefthook": "lefthook",
    b"git lfs": "git-lfs",
    b"overcommit": "overcommit",
}
"""By what stands in them."""
MAX_SIZE = 1 << 20
UNKNOWN = "set"
"""In the place of a fingerprint, where there is no key."""


def stamp(place: ProbeTarget) -> str | None:
    """Where they stand, and the stats of all that are in force."""
    seen = [place.hooks]
    for name, told in _hooks(place.hooks):
        seen.append(f"{name}:{told.st_ino}:{told.st_size}:{told.st_mtime_ns}:{told.st_ctime_ns}")
    return " ".join(seen)


def facts_of(place: ProbeTarget, keyed: Keyed) -> Iterator[Fact]:
    """Every hook that is in force."""
    for name, _ in _hooks(place.hooks):
        text = _read(os.path.join(place.hooks, name))
        if text is not None:
            maker = next((maker for sign, maker in MAKERS.items() if sign in text), "")
            yield Fact(PROBE, name, keyed(b"hook\0" + name.encode("ascii"), text) or UNKNOWN, by=maker)


def _hooks(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        names = sorted(NAMES.intersection(os.listdir(directory)))
    except OSError:
        return
    for name in names:
        path = os.path.join(directory, name)
        try:
            told = os.stat(path)
        except OSError:
            continue  # it went, or leads nowhere
        if told.st_mode & 0o111:
            yield name, told


def _read(path: str) -> bytes | None:
    try:
        # A FIFO of that name would never end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        return file.read(MAX_SIZE)
