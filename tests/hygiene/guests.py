"""What may not change by a capture, as plain find and git tell it."""

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
    """All that is the user's: the working tree, the git directory but for our own places, git's answers."""

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
    """Everything of the user's, to be compared after whatever a capture did."""
    # `git status` would refresh the index itself.
    asking = {"GIT_OPTIONAL_LOCKS": "0"}
    answers = tuple(repo.execute("git", *words, env=asking).out for words in QUESTIONS)
    git_dir = repo.path / repo.git("rev-parse", "--git-common-dir")
    return Belongings(listing(repo.path, top=True), _foreign(listing(git_dir)), answers)


def _foreign(found: Listing) -> Listing:
    # A directory's time changes with the names in it, and ours stand among them.
    return {path: entry for path, entry in found.items() if not _is_ours(path) and entry.kind != "d"}


def _is_ours(path: bytes) -> bool:
    if path.startswith((*(name + b"/" for name in OWN_NAMES), b"worktrees/")) and (
        b"/envhist/" in path or not path.startswith(b"worktrees/")
    ):
        return True
    return path.startswith((b"objects/pack/", b"objects/.envhist-staging/"))


def busy(repo: Repo) -> None:
    """A repository in the middle of work."""
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
    """The packs that are not ours."""
    place = repo.path / ".git" / "objects" / "pack"
    files = sorted(place.iterdir()) if place.is_dir() else []
    return {path.name: path.read_bytes() for path in files if not path.with_suffix(".keep").exists()}


def worktree(repo: Repo, name: str, branch: str) -> Repo:
    """A linked worktree beside the repository."""
    place = repo.path.parent / name
    repo.git("worktree", "add", "-q", str(place), "-b", branch)
    return Repo(place, dict(repo.env))
