"""The sizes that `du` prints match the freed disk space, for random histories."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.git.repository import Repository
from git_envhist.maintenance.gc import KEEP_NOTHING, collect_garbage
from git_envhist.model import Snapshot
from tests.maintenance.test_collect import size_of, take_snapshot
from tests.objects.packing import noise
from tests.support.depth import FULL
from tests.support.repository import Repo, make_repo

LIVES = range(3 if FULL else 1)
FILES = 500
SAID_ANEW = 2_000
"""Bytes that are written again: the commits after a gap, their notes, and the directories above an erased path."""


@dataclass(frozen=True)
class Life:
    """A repository with a random history."""

    repo: Repo
    seed: int
    moments: list[Snapshot]


def open_history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


@pytest.fixture(scope="module", params=LIVES)
def life(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Make a repository with a history, once per seed."""
    repo = make_repo(tmp_path_factory.mktemp("life") / "repo")
    return Life(repo, request.param, live_and_clean(repo, open_history(repo), random.Random(request.param)))


@pytest.fixture
def copied(life: Life, tmp_path: Path) -> Repo:
    """Copy the repository of a history, for a test that changes it."""
    shutil.copytree(life.repo.path, tmp_path / "copied", symlinks=True)
    return Repo(tmp_path / "copied", life.repo.env)


def live(repo: Repo, history: EnvHistory, chance: random.Random) -> list[Snapshot]:
    """Texts that change a little, directories with changing entries, incompressible and repeated data."""
    lines = {name: [f"{chance.random()}" for _ in range(400)] for name in range(12)}
    moments = []
    for number in range(10):
        for name in chance.sample(sorted(lines), 3):
            lines[name][chance.randrange(400)] = f"changed {number} {chance.random()}"
        for name, text in lines.items():
            repo.write(f"src/m{name % 3}/part{name}.py", "\n".join(text))
        for one in range(FILES) if number == 0 else chance.sample(range(FILES), FILES // 8):
            repo.write(f"many/file{one}", f"{number} {one}")
        repo.write("cache/blob", noise(20_000, chance.randrange(4)))
        moments.append(take_snapshot(history, f"moment {number}"))
    return moments


def live_and_clean(repo: Repo, history: EnvHistory, chance: random.Random) -> list[Snapshot]:
    first, *moments = live(repo, history, chance)
    # The first drop also frees the older versions of the notes.
    drop(history, [first])
    clean(repo)
    return moments


def clean(repo: Repo) -> None:
    # With one thread: with more, the division of the work is not reproducible.
    collect_garbage(Repository.open(str(repo.path)), keep_since=KEEP_NOTHING, threads=1)


def freed_bytes(repo: Repo, go: Callable[[], object]) -> int:
    before = size_of(repo)
    go()
    clean(repo)
    return before - size_of(repo)


def drop(history: EnvHistory, some: Sequence[Snapshot]) -> None:
    history.drop(*(one.id for one in some))
    history.dropper.empty_trash()


def test_dropped_snapshots_free_the_bytes_that_du_prints(copied: Repo, life: Life) -> None:
    chance, history = random.Random(f"snapshots {life.seed}"), open_history(copied)
    some = chance.sample(life.moments, chance.choice([1, 2, 4]))
    said = history.du(*(one.id for one in some)).together

    back = freed_bytes(copied, lambda: drop(history, some))

    assert said is not None
    assert abs(said - back) < SAID_ANEW


@pytest.mark.parametrize("path", ["src/m1", "cache", "many/file3"])
def test_purged_path_frees_the_bytes_that_du_prints(copied: Repo, path: str) -> None:
    history = open_history(copied)
    said = history.du(paths=[path.encode()]).together

    back = freed_bytes(copied, lambda: history.purge(str(copied.path / path)))

    assert said is not None
    assert abs(said - back) < SAID_ANEW


def test_dropped_snapshots_free_more_than_du_prints_when_packs_were_never_cleaned(repo: Repo) -> None:
    history = open_history(repo)
    moments = live(repo, history, random.Random("fresh"))
    said = history.du(moments[3].id, moments[4].id).together
    assert said is not None
    assert freed_bytes(repo, lambda: drop(history, moments[3:5])) > said
