"""git's own list of the packs that a cleaning wrote: there for the user's git, never in its way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.git.refs import LONG_AGO
from git_envhist.maintenance.gc import collect
from git_envhist.maintenance.merge_packs import MAX_PACKS
from git_envhist.objects.own_packs import packs_named
from tests.maintenance.test_collect import moment, packs_of
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
    """Days of work, each of them packed, the first with most in it."""
    for day in range(first, first + count):
        repo.write("app.db", noise(400_000 >> (3 * (day - first)), day))
        repo.write(f"kept-{day}", noise(200_000 >> (3 * (day - first)), 100 + day))
        moment(history, f"day {day}")
        collect(history.repository, thorough=False)
        grow_older(repo.path / ".git", DAY)


def work(repo: Repo, history: EnvHistory, number: int) -> None:
    repo.write("work", noise(1000, number))
    moment(history, f"work {number}")


def test_packs_of_a_cleaning_stand_in_it_and_those_of_captures_do_not(
    repo: Repo, history: EnvHistory
) -> None:
    days(repo, history, 2)
    written = {path.stem for path in packs_of(repo)}
    assert len(written) == 2
    assert named(repo) == written
    repo.write("fresh", "1")
    fresh = moment(history, "fresh")
    assert named(repo) == written
    assert repo.git("cat-file", "-t", fresh.commit) == "commit"
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""
    assert repo.run("envlog", "fsck", check=True).status == 0
    # Another cleaning, and it speaks of no pack that went.
    days(repo, history, 1, first=2)
    assert named(repo) <= {path.stem for path in packs_of(repo)}
    repo.run("envlog", "gc", "--prune=now", check=True)
    assert len(packs_of(repo)) == 1
    assert not midx(repo).exists()
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""


def test_one_that_the_user_has_is_left_as_it_is(repo: Repo, history: EnvHistory) -> None:
    repo.git("repack", "-d", "-q")
    repo.git("multi-pack-index", "write")
    theirs = midx(repo).read_bytes()
    days(repo, history, 2)
    assert midx(repo).read_bytes() == theirs


def test_packs_of_captures_come_into_it_where_gits_leave_no_gap_to_merge_them(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(repo, history, 2)
    written = named(repo)
    with monkeypatch.context() as busy:
        busy.setattr("git_envhist.maintenance.merge_packs.no_git_reads_packs", lambda *_: False)
        for number in range(MAX_PACKS):
            work(repo, history, number)
            assert named(repo) == written
        work(repo, history, MAX_PACKS)
        assert named(repo) == {path.stem for path in packs_of(repo)}
        assert len(named(repo)) == 2 + MAX_PACKS + 1
        repo.git("multi-pack-index", "verify")
        # And the rest once it is many, too.
        work(repo, history, MAX_PACKS + 1)
        assert len(packs_of(repo)) == len(named(repo)) + 1
    # They are merged when there is quiet, and it speaks of no pack that went.
    work(repo, history, MAX_PACKS + 2)
    assert named(repo) == written
    assert len(packs_of(repo)) <= len(written) + 2
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""
    assert history.fsck().is_whole
    assert len(history.log()) == 2 + MAX_PACKS + 3


def test_nobody_who_writes_one_finds_it_locked(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(repo, history, 2)
    written = named(repo)
    monkeypatch.setattr("git_envhist.maintenance.merge_packs.no_git_reads_packs", lambda *_: False)
    monkeypatch.setattr("git_envhist.maintenance.merge_packs.goes_by_packs", lambda *_: True)
    for number in range(MAX_PACKS + 2):
        work(repo, history, number)
    assert named(repo) == written


def test_git_goes_on_cleaning_beside_it(repo: Repo, history: EnvHistory) -> None:
    days(repo, history, 2)
    repo.commit("more")
    for words in (("gc", "-q", "--prune=now"), ("repack", "-adq"), ("multi-pack-index", "expire")):
        repo.git(*words)
        assert repo.git("fsck", "--full", "--strict", "--no-dangling") == "", words
    assert [one.intent for one in history.log()] == ["day 1", "day 0"]
    assert history.fsck().is_whole


def test_one_that_is_damaged_is_named_and_goes(repo: Repo, history: EnvHistory) -> None:
    days(repo, history, 2)
    damage(midx(repo), lambda content: flip(content, len(content) // 2))
    found = repo.run("envlog", "fsck")
    assert found.status == 1
    assert "multi-pack-index" in found.out + found.err
    done = repo.run("envlog", "fsck", "--repair", check=True)
    assert "git's multi-pack-index did not say what the packs say, and was dropped" in done.out
    assert not midx(repo).exists()
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""


def test_the_lock_of_a_git_that_died_beside_it_keeps_nobody_from_writing_one(
    repo: Repo, history: EnvHistory
) -> None:
    days(repo, history, 1)
    objects = repo.path / ".git/objects"
    locks = [objects / "pack/multi-pack-index.lock", objects / "info/commit-graph.lock"]
    for lock in locks:
        lock.parent.mkdir(exist_ok=True)
        lock.write_bytes(b"")
    # Somebody may be writing.
    repo.run("envlog", "gc", check=True)
    assert all(lock.exists() for lock in locks)
    long_ago = time.time() - LONG_AGO - 5
    for lock in locks:
        os.utime(lock, (long_ago, long_ago))
    repo.run("envlog", "gc", check=True)
    assert not any(lock.exists() for lock in locks)
    repo.git("multi-pack-index", "write")
    repo.git("commit-graph", "write", "--reachable")
