"""Repositories with hooks of ours: waiting for what runs by itself, and everything that stands in a directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.repository import Repo

PATIENCE = 120.0
"""Seconds until what has to come is said not to come; what does come is there in one or two."""

Standing = dict[str, tuple[str, bytes, int]]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Return when it is so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.02)


def intents(repo: Repo) -> list[str]:
    """Return the intent of each snapshot, newest first, as plain git reads it; without one the code's subject."""
    messages = "\n".join(_told(repo, "%x01%B")).split("\x01")[1:]
    return [_intent_of(message) for message in messages]


def _intent_of(message: str) -> str:
    subject, _, rest = message.partition("\n\n")
    return rest.partition("\n")[0] if subject.startswith("snapshot after ") else subject


def triggers(repo: Repo) -> list[str]:
    """What caused each snapshot, newest first."""
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
    """The lines of the log of hooks, oldest first."""
    try:
        return (git_dir(repo) / "envhist/hooks/log").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def wait_for_runs(repo: Repo, number: int) -> None:
    """Return when so many runs of hooks have come to an end, and nothing is left to do."""
    wait_for(lambda: len(log_of(repo)) >= number and is_idle(repo), f"{number} runs in {repo.path}")


def is_idle(repo: Repo) -> bool:
    """No mark waits for an answer: it goes last, when what came of it is written down.

    Nobody is asked by the lock: whoever tries it holds it, and a hook that comes just then takes that for a worker.
    """
    return not (git_dir(repo) / "envhist/hooks/pending").exists()


def standing(directory: Path) -> Standing:
    """Everything in a directory: its kind, its mode, its bytes."""
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
    """A hook of the user's own."""
    return repo.write(f".git/hooks/{event}", text, mode)
