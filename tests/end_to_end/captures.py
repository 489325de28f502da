"""Helpers for tests of whole captures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.oracle import Listing, listing
from tests.support.repository import Repo
from tests.support.snapshot import ReadBack, read_back


def capture(repo: Repo, *words: str | bytes) -> str:
    """Take a snapshot and return its full id."""
    return repo.run("envlog", "capture", "--porcelain", *words, check=True).out.strip()


def tip(repo: Repo) -> str | None:
    """Return the newest snapshot of the only timeline."""
    refs = repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads").split()
    assert len(refs) <= 1
    return refs[0] if refs else None


def history(repo: Repo) -> list[str]:
    """Return the ids of the only timeline, newest first."""
    newest = tip(repo)
    return repo.git("rev-list", newest).split() if newest else []


def assert_holds(repo: Repo, commit: str, wanted: Listing | None = None) -> ReadBack:
    """Check that the snapshot has exactly the entries that find sees in the working tree, or the given ones."""
    found = read_back(repo, commit)
    seen = listing(repo.path, top=True) if wanted is None else wanted
    assert _comparable(found.listing, found) == _comparable(seen, found)
    return found


def _comparable(entries: Listing, found: ReadBack) -> Listing:
    # The bytes of sealed files are checked by the tests that have the key.
    sealed = {path for path, how in found.stored.items() if how == "sealed"}
    return {
        path: replace(entry, sha256=None, size=None) if path in sealed else entry
        for path, entry in entries.items()
    }


def everything_of_git(repo: Repo) -> Listing:
    """Return the parts of `.git` that a capture must not change."""
    own = (b"envhist", b"objects/pack", b"refs/envhist", b"refs/notes", b"worktrees", b"packed-refs")
    found = listing(Path(repo.path) / ".git", without=own)
    # Directories of git that contain those of git-envhist get new entries.
    return {path: entry for path, entry in found.items() if entry.kind != "d"}
