"""Concurrent captures, and captures during git's maintenance: all succeed and are complete."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from git_envhist import EnvHistory
from tests.end_to_end.captures import capture
from tests.hygiene.user_data import worktree
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

CLEANING = (
    "git gc -q --prune=now",
    "git repack -q -a -d",
    "git prune --expire=now",
    "git maintenance run --quiet --task=gc --task=incremental-repack --task=loose-objects",
    "git pack-refs --all --prune",
    "git repack -q -A -d --write-midx",
    "git commit-graph write --reachable",
)


@contextmanager
def cleaning(repo: Repo) -> Iterator[None]:
    """Run all git commands that rewrite packs, loose objects and refs in a loop until the block ends."""
    script = f"while [ ! -e ../stop ]; do {'; '.join(CLEANING)}; done"
    loop = subprocess.Popen(
        ["sh", "-c", script],
        cwd=repo.path,
        env=repo.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        (repo.path.parent / "stop").touch()
        loop.wait()
        (repo.path.parent / "stop").unlink()


def churn(repo: Repo, step: int) -> None:
    """Write new files, and store their contents as unreachable objects, which git's maintenance may delete."""
    repo.write("churn", f"{step}".encode() * 100)
    repo.write(f"d{step % 5}/deep/file", f"deep {step}".encode() * 10)
    # Content that was captured before, disappeared and returns.
    repo.write("again", f"{step % 3}".encode() * 200)
    # This fails at times during a gc that removes empty directories: a race between two git processes.
    repo.git("hash-object", "-w", "churn", "again", f"d{step % 5}/deep/file", check=False)


def captures_during_cleaning(repo: Repo, number: int) -> list[str]:
    taken = []
    with cleaning(repo):
        for step in range(number):
            churn(repo, step)
            snapshot = EnvHistory.open(str(repo.path), workers="here").capture(f"step {step}").snapshot
            assert snapshot is not None
            taken.append(snapshot.id)
    return taken


def missing_objects(repo: Repo) -> str:
    """Run git's full cleanup once more and return the objects that snapshots need and that are missing."""
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    repo.git("rev-list", "--objects", "--all", "--quiet")
    return git_fsck(repo.path)


@pytest.mark.full
def test_captures_during_git_maintenance_lose_no_object(repo: Repo) -> None:
    taken = captures_during_cleaning(repo, 40)
    assert missing_objects(repo) == ""
    for step, snapshot in enumerate(taken):
        assert repo.git("show", f"{snapshot}:churn") == f"{step}" * 100
    assert repo.git("rev-list", "--first-parent", taken[-1]).split() == taken[::-1]


WORDS = ("git-envlog", "capture", "--porcelain", "-m")


def racing(places: list[Repo], rounds: int) -> list[tuple[str, int, str]]:
    running = [
        subprocess.Popen(
            [*WORDS, f"racing {number}"],
            cwd=place.path, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in range(rounds)
        for place in places
    ]  # fmt: skip
    said = [process.communicate() for process in running]
    return [
        (out.decode().strip(), process.returncode, err.decode())
        for (out, err), process in zip(said, running, strict=True)
    ]


def test_concurrent_first_captures_succeed_and_are_listed(repo: Repo) -> None:
    ended = racing([repo], 4)
    assert [status for _, status, _ in ended] == [0] * 4, ended
    listed = repo.run("envlog", "--format=%H", check=True).out.split()
    assert sorted(listed) == sorted(snapshot for snapshot, _, _ in ended)
    assert len(set(listed)) == 4
    assert git_fsck(repo.path) == ""


def test_concurrent_captures_of_two_worktrees_have_separate_timelines(repo: Repo) -> None:
    linked = worktree(repo, "linked", "other")
    ended = racing([repo, linked], 2)
    assert [status for _, status, _ in ended] == [0] * 4, ended
    for at, place in enumerate((repo, linked)):
        listed = place.run("envlog", "--format=%H", check=True).out.split()
        assert sorted(listed) == sorted(snapshot for snapshot, _, _ in ended[at::2])
    keys = [path for path in (repo.path / ".git/envhist/keys").iterdir() if len(path.name) == 32]
    assert len(keys) == 1
    assert git_fsck(repo.path) == ""


def test_names_and_notes_written_during_captures_are_kept(repo: Repo) -> None:
    first = capture(repo, "first")
    words = [["git-envlog", "name", f"n{number}", first] for number in range(3)]
    words += [["git-envlog", "note", first, "-m", f"remark {number}"] for number in range(3)]
    words += [[*WORDS, f"racing {number}"] for number in range(2)]
    running = [
        subprocess.Popen(w, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for w in words
    ]
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0] * len(words), said
    card = repo.run("envlog", "show", first, check=True).out
    assert all(f"n{number}" in card and f"remark {number}" in card for number in range(3))
