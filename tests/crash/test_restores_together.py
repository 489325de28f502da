"""Concurrent restores, captures and git commands: serialized where necessary, each complete."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.crash.restorecut import left_behind, prepare
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.repository import Repo

CLEANING = ("gc --prune=now --quiet", "repack -adq", "prune", "pack-refs --all")


@contextmanager
def in_a_loop(repo: Repo, *commands: str) -> Iterator[None]:
    """Run git in a loop until the body is over."""
    flag = repo.path.parent / "go on"
    flag.touch()
    again = " ".join(f"git {command} 2>/dev/null;" for command in commands)
    words = ["sh", "-c", f"while [ -e '{flag}' ]; do {again} done"]
    running = subprocess.Popen(words, cwd=repo.path, env=repo.env, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        flag.unlink()
        running.wait()


def list_files(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


@pytest.mark.full
def test_two_concurrent_restores_and_a_capture_take_turns(repo: Repo) -> None:
    moments = prepare(repo)
    commands = [["git-envrestore", moment] for moment in moments]
    commands.append(["git-envlog", "capture", "--porcelain", "beside"])
    at_once = [
        subprocess.Popen(words, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for words in commands
    ]
    said = [(running.communicate()[1], running.returncode) for running in at_once]
    assert [status for _, status in said] == [0, 0, 0], said
    assert list_files(repo) in moments.values()
    taken = repo.git("log", "--all", "--format=%H", "--grep=^beside$").split()
    assert len(taken) == 1
    repo.run("envrestore", taken[0], check=True)
    assert list_files(repo) in moments.values()
    assert git_fsck(repo.path) == ""
    assert left_behind(repo) == []


@pytest.mark.full
def test_restores_are_exact_during_git_gc(repo: Repo) -> None:
    moments = prepare(repo)
    repo.commit("so that git has something to pack")
    with in_a_loop(repo, *CLEANING):
        for moment in moments:
            repo.run("envrestore", moment, check=True)
            assert list_files(repo) == moments[moment]
    assert git_fsck(repo.path) == ""


@pytest.mark.full
def test_files_written_by_concurrent_checkouts_are_kept_or_saved(repo: Repo) -> None:
    repo.git("checkout", "-q", "-b", "other")
    repo.write("app.py", b"print('of the other branch')\n")
    repo.git("commit", "-qam", "other")
    moments = prepare(repo)
    with in_a_loop(repo, "checkout -q -f main", "checkout -q -f other", "rebase -q --force-rebase HEAD~1"):
        for moment in moments:
            done = repo.run("envrestore", moment)
            assert done.status in (0, 3, 5), done.err
            if done.status != 3:
                found, wanted = list_files(repo), moments[moment]
                odd = {path for path in found | wanted if found.get(path) != wanted.get(path)}
                assert odd <= {b"app.py", b""}, done.err
    assert git_fsck(repo.path) == ""
    assert left_behind(repo) == []
