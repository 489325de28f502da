"""List git hooks, the tools that installed them, and fingerprints of their content.

Hooks are in the repository or in `core.hooksPath`, usually outside every snapshot. Their text is not stored,
only a keyed fingerprint. Files that are not executable are ignored, as git does.
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
"""Names of hooks that git runs."""
MAKERS = {
    b"git-envhist": "git-envhist",
    b"husky": "husky",
    b"pre-commit.com": "pre-commit",
    b"lefthook": "lefthook",
    b"git lfs": "git-lfs",
    b"overcommit": "overcommit",
}
"""Text contained in a hook -> the tool that installs it."""
MAX_SIZE = 1 << 20
NO_FINGERPRINT = "set"
"""Value without a key."""


def stamp(target: ProbeTarget) -> str | None:
    """Return the hooks directory and the stats of all active hooks."""
    parts = [target.hooks]
    for name, hook_stat in _hooks(target.hooks):
        parts.append(
            f"{name}:{hook_stat.st_ino}:{hook_stat.st_size}:{hook_stat.st_mtime_ns}:{hook_stat.st_ctime_ns}"
        )
    return " ".join(parts)


def facts_of(target: ProbeTarget, keyed: Keyed) -> Iterator[Fact]:
    """Yield each active hook."""
    for name, _ in _hooks(target.hooks):
        text = _read(os.path.join(target.hooks, name))
        if text is not None:
            maker = next((maker for sign, maker in MAKERS.items() if sign in text), "")
            yield Fact(PROBE, name, keyed(b"hook\0" + name.encode("ascii"), text) or NO_FINGERPRINT, by=maker)


def _hooks(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        names = sorted(NAMES.intersection(os.listdir(directory)))
    except OSError:
        return
    for name in names:
        path = os.path.join(directory, name)
        try:
            hook_stat = os.stat(path)
        except OSError:
            continue  # removed, or a dangling link
        if hook_stat.st_mode & 0o111:
            yield name, hook_stat


def _read(path: str) -> bytes | None:
    try:
        # O_NONBLOCK, because opening a FIFO would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        return file.read(MAX_SIZE)
