"""All that somebody does with a history, done in a repository of whatever kind, and judged by find and git."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tests.end_to_end.captures import assert_holds, capture
from tests.hygiene.guests import Belongings, belongings
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

SPOKEN = "d \u00e4/spoken"


def assert_serves(repo: Repo, git_dir: Path | None = None) -> tuple[str, str]:
    """Two moments are captured whole, read and compared, and nothing else has changed; the two ids."""
    repo.write(SPOKEN, b"1\r\n")
    first = capture(repo, "the first")
    repo.write(SPOKEN, b"2\r\n")
    before = _unstamped(belongings(repo))
    second = capture(repo, "the second")
    assert _unstamped(belongings(repo)) == before
    assert_holds(repo, second)
    assert_reads(repo, first, second)
    assert git_fsck(git_dir or repo.path) == ""
    return first, second


def assert_reads(repo: Repo, first: str, second: str) -> None:
    """The list, a comparison of two moments, one with now, and a file as it was."""
    assert repo.run("envlog", "--format=%H", check=True).out.split()[:2] == [second, first]
    told = repo.run("envdiff", "--name-status", "-z", first, second, check=True).stdout
    assert told == b"M\0" + SPOKEN.encode() + b"\0"
    assert repo.run("envlog", "show", first, "--", SPOKEN, check=True).stdout == b"1\r\n"
    top = repo.path.stat()
    repo.write("only now", b"here\n")
    assert repo.run("envdiff", "--name-status", check=True).out == "A\tonly now\n"
    (repo.path / "only now").unlink()
    os.utime(repo.path, ns=(top.st_atime_ns, top.st_mtime_ns))


def _unstamped(found: Belongings) -> Belongings:
    # A table of refs holds the user's and ours: what git answers of the user's is compared. Objects that git needs
    # for an answer are as good as new to it, and given the time.
    foreign = {
        path: replace(entry, mtime_ns=0) if path.startswith(b"objects/") else entry
        for path, entry in found.git.items()
        if not path.startswith(b"reftable/")
    }
    return replace(found, git=foreign)


def linked(repo: Repo, place: str | os.PathLike[str], *words: str) -> Repo:
    """A linked worktree."""
    repo.git("worktree", "add", "-q", os.fspath(place), *words)
    return Repo(repo.path / place, dict(repo.env))
