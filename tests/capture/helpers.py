"""Helpers for captures through the API and for changed time stamps."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.model import CaptureResult, Snapshot
from tests.support.repository import Repo, make_repo

HOWS = ("here", "fork", "spawn")


@contextmanager
def fresh_repo(object_format: str = "sha1") -> Iterator[Repo]:
    """Return a new repository for one example."""
    directory = tempfile.mkdtemp()
    try:
        yield make_repo(Path(directory) / "work", object_format=object_format)
    finally:
        shutil.rmtree(directory)


def take(repo: Repo, how: str = "here", **options: object) -> CaptureResult:
    """Capture and return the result."""
    return EnvHistory.open(str(repo.path), workers=how, one_command=True).capture("x", **options)  # type: ignore[arg-type]


def snapshot(repo: Repo, how: str = "here", **options: object) -> Snapshot:
    """Capture and return the snapshot."""
    taken = take(repo, how, **options).snapshot
    assert taken is not None
    return taken


def forget_cache(repo: Repo) -> None:
    """Delete the stat cache, so that the next capture reads everything."""
    shutil.rmtree(repo.path / ".git/envhist/cache", ignore_errors=True)


def settle(repo: Repo) -> None:
    """Capture until the stat cache is trusted: files as young as a capture are read again by the next one."""
    for _ in range(2):
        time.sleep(0.05)
        take(repo)


def tree_of(repo: Repo, how: str = "here") -> str:
    """Return the tree of a capture taken now."""
    return snapshot(repo, how).tree


def everything_stored(repo: Repo) -> bytes:
    """Return all bytes of all objects."""
    return repo.run_git("cat-file", "--batch-all-objects", "--batch", "--unordered").stdout
