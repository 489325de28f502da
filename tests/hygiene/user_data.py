"""The user's data that a capture must not change, listed with find and git."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

OWN_NAMES = (
    b"envhist",
    b"refs/envhist",
    b"refs/notes/envhist",
    b"logs/refs/envhist",
    b"logs/refs/notes/envhist",
)


@dataclass(frozen=True)
class Belongings:
    """The user's data: the working tree, the git directory without our files, and the output of git commands."""

    work: Listing
    git: Listing
    answers: tuple[str, ...]


QUESTIONS = (
    ("status", "--porcelain=v2", "--branch", "--ignored"),
    ("stash", "list"),
    ("for-each-ref", "--format=%(objectname) %(refname) %(symref)", "refs/heads", "refs/tags", "refs/stash"),
    ("config", "--list", "--show-origin", "-z"),
    ("reflog", "--all", "--format=%H %gd %gs"),
    ("ls-files", "--stage", "--debug"),
)


def belongings(repo: Repo) -> Belongings:
    """Return the user's data, to compare it with the data after a capture."""
    # `git status` would refresh the index itself.
    asking = {"GIT_OPTIONAL_LOCKS": "0"}
    answers = tuple(repo.execute("git", *words, env=asking).out for words in QUESTIONS)
    git_dir = repo.path / repo.git("rev-parse", "--git-common-dir")
    return Belongings(listing(repo.path, top=True), _without_our_files(listing(git_dir)), answers)


def _without_our_files(found: Listing) -> Listing:
    # Directories are left out: their times change when our files are created in them.
    return {path: entry for path, entry in found.items() if not _is_ours(path) and entry.kind != "d"}


def _is_ours(path: bytes) -> bool:
    if path.startswith((*(name + b"/" for name in OWN_NAMES), b"worktrees/")) and (
        b"/envhist/" in path or not path.startswith(b"worktrees/")
    ):
        return True
    return path.startswith((b"objects/pack/", b"objects/.envhist-staging/"))


def busy(repo: Repo) -> None:
    """Fill a repository with staged, stashed, changed, untracked and ignored files."""
    repo.write(".gitignore", b"*.log\n.venv/\n")
    repo.write(".gitattributes", b"*.txt text eol=crlf\n*.py ident filter=shout\n")
    repo.write("notes.txt", b"lf\ncrlf\r\n")
    repo.commit("ignore")
    repo.git("tag", "v1")
    repo.write("app.py", b"stashed $Id$\n")
    repo.git("stash", "-q")
    repo.git("branch", "feature")
    repo.write("staged.py", b"staged\n")
    repo.git("add", "staged.py")
    repo.write("staged.py", b"and changed again\n")
    repo.write("app.py", b"changed $Id$\n")
    repo.write("untracked", b"?\r\n")
    repo.write("ignored.log", b"!\n")
    repo.write(".venv/bin/python", b"#!\n", 0o755)
    repo.write(".env.local", b"API_KEY=1234\n")
    os.symlink("nowhere", repo.path / "link")


def user_packs(repo: Repo) -> dict[str, bytes]:
    """Return the packs that git wrote for the user, without ours."""
    place = repo.path / ".git" / "objects" / "pack"
    files = sorted(place.iterdir()) if place.is_dir() else []
    return {path.name: path.read_bytes() for path in files if not path.with_suffix(".keep").exists()}


def worktree(repo: Repo, name: str, branch: str) -> Repo:
    """Create a linked worktree next to the repository."""
    place = repo.path.parent / name
    repo.git("worktree", "add", "-q", str(place), "-b", branch)
    return Repo(place, dict(repo.env))
