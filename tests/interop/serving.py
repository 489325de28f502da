"""The usual commands on a history, run in a given repository and checked with find and git."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tests.end_to_end.captures import assert_holds, capture
from tests.hygiene.user_data import Belongings, belongings
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

SPOKEN = "d \u00e4/spoken"


def assert_commands_work(repo: Repo, git_dir: Path | None = None) -> tuple[str, str]:
    """Capture two snapshots, read and compare them, and check that no user data changed; return both ids."""
    repo.write(SPOKEN, b"1\r\n")
    first = capture(repo, "the first")
    repo.write(SPOKEN, b"2\r\n")
    before = _without_object_times(belongings(repo))
    second = capture(repo, "the second")
    assert _without_object_times(belongings(repo)) == before
    assert_holds(repo, second)
    assert_reads(repo, first, second)
    assert git_fsck(git_dir or repo.path) == ""
    return first, second


def assert_reads(repo: Repo, first: str, second: str) -> None:
    """Check the list, a comparison of two snapshots, one with now, and an older file."""
    assert repo.run("envlog", "--format=%H", check=True).out.split()[:2] == [second, first]
    output = repo.run("envdiff", "--name-status", "-z", first, second, check=True).stdout
    assert output == b"M\0" + SPOKEN.encode() + b"\0"
    assert repo.run("envlog", "show", first, "--", SPOKEN, check=True).stdout == b"1\r\n"
    top = repo.path.stat()
    repo.write("only now", b"here\n")
    assert repo.run("envdiff", "--name-status", check=True).out == "A\tonly now\n"
    (repo.path / "only now").unlink()
    os.utime(repo.path, ns=(top.st_atime_ns, top.st_mtime_ns))


def _without_object_times(found: Belongings) -> Belongings:
    # Tables of refs contain the user's refs and ours, so only git's answers are compared for these. The times of
    # objects are left out, because git sets them to now when it needs an existing object.
    foreign = {
        path: replace(entry, mtime_ns=0) if path.startswith(b"objects/") else entry
        for path, entry in found.git.items()
        if not path.startswith(b"reftable/")
    }
    return replace(found, git=foreign)


def linked(repo: Repo, place: str | os.PathLike[str], *words: str) -> Repo:
    """Create a linked worktree."""
    repo.git("worktree", "add", "-q", os.fspath(place), *words)
    return Repo(repo.path / place, dict(repo.env))
