"""After any series of maintenance, each kept snapshot restores every captured byte."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from git_envhist.api import EnvHistory
from git_envhist.maintenance.merge_packs import merge_packs_after
from tests.end_to_end.captures import assert_holds
from tests.objects.packing import noise
from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

STEPS = 25


class Series:
    """A history and its expected content."""

    def __init__(self, repo: Repo, seed: str) -> None:
        self.repo = repo
        self.rng = random.Random(seed)
        self.held: dict[str, Listing] = {}
        self.dropped: dict[str, Listing] = {}
        self.listed = 0
        repo.git("init", "-q", "--bare", "../server")
        repo.git("remote", "add", "origin", "../server")

    @property
    def history(self) -> EnvHistory:
        return EnvHistory.open(str(self.repo.path), workers="here", one_command=True)

    def capture(self) -> None:
        for _ in range(3):
            name = f"d{self.rng.randrange(3)}/f{self.rng.randrange(6)}"
            self.repo.write(name, noise(self.rng.randrange(4_000), self.rng.randrange(8)))
        with pytest.MonkeyPatch.context() as patch:
            # Packs are merged at nearly every capture, or listed if gits run without a pause.
            patch.setattr(
                "git_envhist.maintenance.merge_packs.merge_packs_after",
                lambda repository: merge_packs_after(repository, 1),
            )
            if self.rng.random() < 0.5:
                patch.setattr("git_envhist.maintenance.merge_packs.no_git_works_from_packs", lambda *_: False)
            captured = self.history.capture("one")
        self.listed += (self.repo.path / ".git/objects/pack/multi-pack-index").exists()
        assert captured.snapshot is not None
        self.held[captured.snapshot.id] = listing(self.repo.path, top=True)

    def drop(self) -> None:
        if len(self.held) > 2:
            one = self.rng.choice(list(self.held))
            self.history.drop(one)
            self.dropped[one] = self.held.pop(one)

    def undrop(self) -> None:
        if self.dropped:
            one = self.rng.choice(list(self.dropped))
            self.history.undrop(one)
            self.held[one] = self.dropped.pop(one)

    def gc(self) -> None:
        self.history.gc(self.rng.choice(["now", None]))

    def users_gc(self) -> None:
        words = self.rng.choice(
            [("gc", "-q", "--prune=now"), ("repack", "-adq"), ("multi-pack-index", "write")]
        )
        self.repo.git(*words)

    def commit(self) -> None:
        self.repo.git("add", "-A")
        self.repo.git("commit", "-q", "--allow-empty", "-m", "work")

    def push(self) -> None:
        self.repo.run("git-envlog", "push", "--yes", check=True)

    def run(self) -> None:
        steps: list[Callable[[], None]] = [
            self.capture,
            self.drop,
            self.undrop,
            self.gc,
            self.users_gc,
            self.commit,
        ]
        self.capture()
        for number in range(STEPS):
            self.push() if number % 10 == 9 else self.rng.choice([*steps, self.capture])()
        self.gc()

    def judge(self) -> None:
        history = self.history
        moments = {one.id: one for one in history.log()}
        assert set(moments) == set(self.held)
        for one, wanted in self.held.items():
            assert_holds(self.repo, moments[one].commit, wanted)
        for one, wanted in self.dropped.items():
            assert_holds(self.repo, history.dropper.find(one).snapshot.commit, wanted)
        assert history.fsck().is_whole
        self.repo.git("fsck", "--full", "--strict", "--no-dangling")


@pytest.mark.parametrize("seed", ["one", "two"])
def test_snapshots_stay_intact_over_any_series_of_maintenance(repo: Repo, seed: str) -> None:
    series = Series(repo, seed)
    series.run()
    assert series.listed > 0
    series.judge()
