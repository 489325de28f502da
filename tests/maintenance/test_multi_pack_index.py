"""git's own list of the packs written by gc helps the user's git and never prevents its work."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.git.running_git import LONG_AGO
from git_envhist.maintenance.gc import collect_garbage
from git_envhist.maintenance.merge_packs import MAX_PACKS
from git_envhist.objects.own_packs import packs_named
from tests.maintenance.test_collect import packs_of, take_snapshot
from tests.objects.packing import damage, flip, grow_older, noise
from tests.support.repository import Repo

DAY = 24 * 3600


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


def midx(repo: Repo) -> Path:
    return repo.path / ".git/objects/pack/multi-pack-index"


def named(repo: Repo) -> set[str]:
    return {os.fsdecode(name).removesuffix(".idx") for name in packs_named(str(midx(repo)))}


def days(repo: Repo, history: EnvHistory, count: int, first: int = 0) -> None:
    """Capture and pack for some days, the first with most data."""
    for day in range(first, first + count):
        repo.write("app.db", noise(400_000 >> (3 * (day - first)), day))
        repo.write(f"kept-{day}", noise(200_000 >> (3 * (day - first)), 100 + day))
        take_snapshot(history, f"day {day}")
        collect_garbage(history.repository, thorough=False)
        grow_older(repo.path / ".git", DAY)


def work(repo: Repo, history: EnvHistory, number: int) -> None:
    repo.write("work", noise(1000, number))
    take_snapshot(history, f"work {number}")


def test_pack_list_contains_packs_of_gc_and_not_of_captures(repo: Repo, history: EnvHistory) -> None:
    days(repo, history, 2)
    written = {path.stem for path in packs_of(repo)}
    assert len(written) == 2
    assert named(repo) == written
    repo.write("fresh", "1")
    fresh = take_snapshot(history, "fresh")
    assert named(repo) == written
    assert repo.git("cat-file", "-t", fresh.commit) == "commit"
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""
    assert repo.run("envlog", "fsck", check=True).status == 0
    # Another gc; the list names no removed pack.
    days(repo, history, 1, first=2)
    assert named(repo) <= {path.stem for path in packs_of(repo)}
    repo.run("envlog", "gc", "--prune=now", check=True)
    assert len(packs_of(repo)) == 1
    assert not midx(repo).exists()
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""


def test_pack_list_of_the_user_is_not_changed(repo: Repo, history: EnvHistory) -> None:
    repo.git("repack", "-d", "-q")
    repo.git("multi-pack-index", "write")
    theirs = midx(repo).read_bytes()
    days(repo, history, 2)
    assert midx(repo).read_bytes() == theirs


def test_packs_of_captures_are_listed_when_they_cannot_be_merged(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(repo, history, 2)
    written = named(repo)
    with monkeypatch.context() as busy:
        busy.setattr("git_envhist.maintenance.merge_packs.no_git_works_from_packs", lambda *_: False)
        for number in range(MAX_PACKS):
            work(repo, history, number)
            assert named(repo) == written
        work(repo, history, MAX_PACKS)
        assert named(repo) == {path.stem for path in packs_of(repo)}
        assert len(named(repo)) == 2 + MAX_PACKS + 1
        repo.git("multi-pack-index", "verify")
        # If there are many more, these are listed, too.
        work(repo, history, MAX_PACKS + 1)
        assert len(packs_of(repo)) == len(named(repo)) + 1
    # The packs are merged when no git runs, and the list names no removed pack.
    work(repo, history, MAX_PACKS + 2)
    assert named(repo) == written
    assert len(packs_of(repo)) <= len(written) + 2
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""
    assert history.fsck().is_whole
    assert len(history.log()) == 2 + MAX_PACKS + 3


def test_pack_list_is_not_written_while_a_git_writes_it(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(repo, history, 2)
    written = named(repo)
    monkeypatch.setattr("git_envhist.maintenance.merge_packs.no_git_works_from_packs", lambda *_: False)
    monkeypatch.setattr("git_envhist.maintenance.merge_packs.works_from_packs", lambda *_: True)
    for number in range(MAX_PACKS + 2):
        work(repo, history, number)
    assert named(repo) == written


def test_git_gc_works_with_a_pack_list(repo: Repo, history: EnvHistory) -> None:
    days(repo, history, 2)
    repo.commit("more")
    for words in (("gc", "-q", "--prune=now"), ("repack", "-adq"), ("multi-pack-index", "expire")):
        repo.git(*words)
        assert repo.git("fsck", "--full", "--strict", "--no-dangling") == "", words
    assert [one.intent for one in history.log()] == ["day 1", "day 0"]
    assert history.fsck().is_whole


def test_damaged_pack_list_is_reported_and_deleted(repo: Repo, history: EnvHistory) -> None:
    days(repo, history, 2)
    damage(midx(repo), lambda content: flip(content, len(content) // 2))
    found = repo.run("envlog", "fsck")
    assert found.status == 1
    assert "multi-pack-index" in found.out + found.err
    done = repo.run("envlog", "fsck", "--repair", check=True)
    assert "git's multi-pack-index disagreed with the packs, and was deleted" in done.out
    assert not midx(repo).exists()
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""


def test_stale_lock_of_the_pack_list_is_removed(repo: Repo, history: EnvHistory) -> None:
    days(repo, history, 1)
    objects = repo.path / ".git/objects"
    locks = [objects / "pack/multi-pack-index.lock", objects / "info/commit-graph.lock"]
    for lock in locks:
        lock.parent.mkdir(exist_ok=True)
        lock.write_bytes(b"")
    # Another process may be writing.
    repo.run("envlog", "gc", check=True)
    assert all(lock.exists() for lock in locks)
    long_ago = time.time() - LONG_AGO - 5
    for lock in locks:
        os.utime(lock, (long_ago, long_ago))
    repo.run("envlog", "gc", check=True)
    assert not any(lock.exists() for lock in locks)
    repo.git("multi-pack-index", "write")
    repo.git("commit-graph", "write", "--reachable")
