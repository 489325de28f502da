"""`git envlog gc`, and the daily gc."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.maintenance.gc import MANY_REFS, collect_garbage
from tests.cli.test_json import validate
from tests.maintenance.test_collect import exists, forget, packs_of, take_snapshot
from tests.objects.packing import noise, pack_of, put_into
from tests.support.repository import Repo


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


def lose_something(repo: Repo, history: EnvHistory) -> str:
    """Return a snapshot that no ref reaches, and one that is kept."""
    repo.write("large", noise(200_000))
    gone = take_snapshot(history, "large")
    forget(repo, history)
    (repo.path / "large").unlink()
    take_snapshot(history, "small")
    return gone.commit


def test_gc_prints_its_result(repo: Repo, history: EnvHistory) -> None:
    gone = lose_something(repo, history)
    first = repo.run("git-envlog", "gc", check=True)
    assert "in 1 pack" in first.out or "in 2 packs" in first.out
    assert "no snapshot uses" in first.out
    assert first.err == ""

    output = json.loads(repo.run("git-envlog", "gc", "--prune=now", "--json", check=True).out)

    validate("collected", output)
    assert output["removed"] > 0 == output["kept"]
    assert output["bytes"]["before"] - output["bytes"]["after"] > 200_000
    assert output["damaged"] == []
    assert not exists(repo, gone)
    assert history.gc().removed == 0


def test_object_in_two_packs_is_counted_once(repo: Repo, history: EnvHistory, tmp_path: Path) -> None:
    take_snapshot(history, "one")
    for number in range(2):
        put_into(repo, pack_of(tmp_path / f"{number}", [b"in both", b"in %d" % number]))
    output = json.loads(repo.run("git-envlog", "gc", "--prune=now", "--json", check=True).out)
    assert (output["removed"], output["kept"]) == (3, 0)


def test_prune_accepts_times_like_git(repo: Repo, history: EnvHistory) -> None:
    gone = lose_something(repo, history)
    for words in ("--no-prune", "--prune=never", "--prune=3.days.ago"):
        repo.run("git-envlog", "gc", words, check=True)
        assert exists(repo, gone)
    for pack in packs_of(repo):
        os.utime(pack, (time.time() - 4 * 24 * 3600,) * 2)
    repo.run("git-envlog", "gc", "--no-prune", check=True)
    assert exists(repo, gone)
    repo.run("git-envlog", "gc", "--prune", "3.days.ago", check=True)
    assert not exists(repo, gone)


def test_mistyped_time_removes_nothing(repo: Repo, history: EnvHistory) -> None:
    gone = lose_something(repo, history)
    done = repo.run("git-envlog", "gc", "--prune=nwo")
    assert done.status == 129
    assert "nwo" in done.err
    assert exists(repo, gone)


def test_gc_in_a_clone_removes_inherited_packs(repo: Repo, history: EnvHistory) -> None:
    repo.write("large", noise(300_000))
    take_snapshot(history, "large")
    repo.git("clone", "-q", "--local", ".", "../clone")
    clone = Repo(repo.path.parent / "clone", repo.env)

    clone.run("git-envlog", "gc", "--prune=now", check=True)

    # The clone keeps the objects of its own branch.
    assert sum(pack.stat().st_size for pack in packs_of(clone)) < 5_000
    clone.git("fsck", "--full", "--strict", "--no-dangling")


def as_people_have_it(repo: Repo) -> None:
    """Enable git's own gc, which the tests' configuration disables."""
    repo.git("config", "gc.auto", "6700")
    repo.git("config", "maintenance.auto", "true")


def stamp(repo: Repo) -> Path:
    return repo.path / ".git/envhist/upkeep"


def test_capture_starts_gc_once_a_day_without_waiting(repo: Repo, history: EnvHistory) -> None:
    as_people_have_it(repo)
    gone = lose_something(repo, history)
    begun = stamp(repo).stat().st_mtime
    weeks_ago = time.time() - 20 * 24 * 3600
    for pack in packs_of(repo):
        os.utime(pack, (weeks_ago, weeks_ago))
    os.utime(stamp(repo), (weeks_ago, weeks_ago))
    # Files of the environment with the names of git-envhist's modules must not be loaded.
    repo.write("git_envhist/__init__.py", "open('run', 'w')\n")
    repo.write("json.py", "open('run', 'w')\n")

    repo.run("git-envlog", "capture", "nothing changed", check=True)

    assert stamp(repo).stat().st_mtime >= begun
    until = time.monotonic() + 120
    while exists(repo, gone) and time.monotonic() < until:
        time.sleep(0.05)
    assert not exists(repo, gone)
    assert not (repo.path / "run").exists()


@pytest.mark.parametrize("setting", [("gc.auto", "0"), ("maintenance.auto", "false")])
def test_git_configuration_disables_the_daily_gc(
    repo: Repo, history: EnvHistory, setting: tuple[str, str]
) -> None:
    as_people_have_it(repo)
    take_snapshot(history, "one")
    repo.git("config", *setting)
    weeks_ago = time.time() - 20 * 24 * 3600
    os.utime(stamp(repo), (weeks_ago, weeks_ago))

    repo.run("git-envlog", "capture", "again", check=True)

    assert abs(stamp(repo).stat().st_mtime - weeks_ago) < 1


def test_daily_gc_packs_merged_packs_of_captures(repo: Repo, history: EnvHistory) -> None:
    for number in range(15):
        repo.write("app.db", noise(60_000) + noise(600, number))
        take_snapshot(history, f"{number}")
    before = sum(pack.stat().st_size for pack in packs_of(repo))

    collect_garbage(history.repository, thorough=False)

    assert len(packs_of(repo)) == 1
    assert packs_of(repo)[0].stat().st_size < before / 4


def test_daily_gc_loses_nothing_and_keeps_packs_few(repo: Repo, history: EnvHistory) -> None:
    for day in range(5):
        for number in range(3):
            repo.write("app.db", noise(6_000, day) + noise(600, number))
            take_snapshot(history, f"{day} {number}")
        history.drop("@~1")
        collect_garbage(history.repository, thorough=False)

    assert len(packs_of(repo)) <= 6
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""
    for one in history.log():
        day, number = map(int, one.intent.split())
        assert history.read_file(one.id, history.environment_path(b"app.db")) == noise(6_000, day) + noise(
            600, number
        )


def test_gc_packs_many_refs(repo: Repo, history: EnvHistory) -> None:
    for number in range(MANY_REFS + 4):
        repo.write("x", f"{number}")
        take_snapshot(history, f"{number}")
    for one in history.log()[1:]:
        history.drop(one)
    before = repo.git("for-each-ref", "--format=%(refname) %(objectname)")

    history.gc()

    assert repo.git("for-each-ref", "--format=%(refname) %(objectname)") == before
    assert [path for path in (repo.path / ".git/refs/envhist").rglob("*") if path.is_file()] == []
    assert take_snapshot(history, "goes on").parent is not None
    assert len(history.dropper.trash()) == MANY_REFS + 3
