"""Helpers for repositories with our hooks: wait for background captures, list directories, write hooks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.repository import Repo

PATIENCE = 120.0
"""Seconds until a wait fails; a background capture usually takes one or two."""

Standing = dict[str, tuple[str, bytes, int]]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"timeout while waiting for {what}"
        time.sleep(0.02)


def intents(repo: Repo) -> list[str]:
    """Return the intent of each snapshot, newest first, as plain git reads it; without one the code's subject."""
    messages = "\n".join(_told(repo, "%x01%B")).split("\x01")[1:]
    return [_intent_of(message) for message in messages]


def _intent_of(message: str) -> str:
    subject, _, rest = message.partition("\n\n")
    return rest.partition("\n")[0] if subject.startswith("snapshot after ") else subject


def triggers(repo: Repo) -> list[str]:
    """Return the trigger of each snapshot, newest first."""
    return _told(repo, "%(trailers:key=Env-Trigger,valueonly,separator=%x2C)")


def _told(repo: Repo, form: str) -> list[str]:
    try:
        timeline = (git_dir(repo) / "envhist/timeline").read_text().strip()
    except FileNotFoundError:
        return []
    told = repo.git("log", f"--format={form}", f"refs/envhist/heads/{timeline}", "--", check=False)
    return told.splitlines()


def git_dir(repo: Repo) -> Path:
    return Path(repo.git("rev-parse", "--absolute-git-dir"))


def log_of(repo: Repo) -> list[str]:
    """Return the lines of the hooks' log, oldest first."""
    try:
        return (git_dir(repo) / "envhist/hooks/log").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def wait_for_runs(repo: Repo, number: int) -> None:
    """Wait until at least `number` hook runs are logged and none is pending."""
    wait_for(lambda: len(log_of(repo)) >= number and is_idle(repo), f"{number} runs in {repo.path}")


def is_idle(repo: Repo) -> bool:
    """Return whether no hook is pending: the mark is removed last, after the result is logged.

    The lock is not tested: the test would hold it briefly, and a hook starting then would take it for a running worker.
    """
    return not (git_dir(repo) / "envhist/hooks/pending").exists()


def standing(directory: Path) -> Standing:
    """Return kind, content and mode of everything in a directory."""
    found: Standing = {}
    for place, names, files in os.walk(directory):
        for name in (*names, *files):
            path = Path(place, name)
            seen = path.lstat()
            found[str(path.relative_to(directory))] = (*_content(path), seen.st_mode & 0o7777)
    return found


def _content(path: Path) -> tuple[str, bytes]:
    if path.is_symlink():
        return "link", os.readlink(path).encode()
    return ("file", path.read_bytes()) if path.is_file() else ("directory", b"")


def write_hook(repo: Repo, event: str, text: str, mode: int = 0o755) -> Path:
    """Write a user's hook."""
    return repo.write(f".git/hooks/{event}", text, mode)
