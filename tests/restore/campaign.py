"""Kill restores in large numbers: `python -m tests.restore.campaign [minutes] [seed]`.

First a restore with every kind of change, killed before each of them, on all three kinds of file system, as root and as
an ordinary user; then restores between random environments, killed at random changes, and again during recovery. The
test suite runs a sample of these cases.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import Phase as Phases
from hypothesis import strategies as st

from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.journal import Phase, read_phase
from tests.conftest import sealed_environment
from tests.restore.killed_calls import DyingCalls
from tests.restore.test_killed import BEFORE, CHANGED, FOREVER, KINDS, Scene, deaths, die_while_recovering
from tests.restore.test_round_trip import CHANGES
from tests.support.privileges import permissions_bind
from tests.support.trees import Edit, Tree


def every_death(place: Path, kind: type[DyingCalls]) -> int:
    """Kill one restore before each of its changes, and continue or abort it."""
    scene = Scene(place / "repo", BEFORE, CHANGED)
    turn = 0
    for turn, (_, begun) in enumerate(deaths(scene, kind, 1)):
        done = begun and read_phase(scene.engine.private) is Phase.DONE
        scene.recover(kind(FOREVER), forwards=bool(turn % 2))
        scene.judge(forwards=begun and (done or bool(turn % 2)))
    return turn + 1


def arbitrary_deaths(place: Path, minutes: float, number: int) -> int:
    """Kill restores between random environments, up to three times each."""
    until = time.monotonic() + minutes * 60
    died = 0
    while time.monotonic() < until:
        try:
            died += a_few_deaths(place, number)
        except BaseException:
            print(f"with the seed {number}, after {died} deaths:", flush=True)
            raise
        number += 1
    return died


def a_few_deaths(place: Path, number: int) -> int:
    died: list[int] = []

    @seed(number)
    @settings(
        max_examples=5,
        deadline=None,
        database=None,
        # Shrinking takes longer than the campaign; the seed is printed.
        phases=[Phases.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(CHANGES, st.integers(0, 2**32))
    def die(change: tuple[Tree, tuple[Edit, ...]], chosen: int) -> None:
        here = Path(tempfile.mkdtemp(dir=place))
        chance = random.Random(chosen)
        scene = Scene(here / "repo", *change)
        for _ in range(6):
            if scene.engine.list_files() != scene.then:
                scene.stand_at_first()
            if not scene.run(chance.choice(KINDS)(chance.randrange(60))):
                die_while_recovering(scene, chance)
                died.append(1)
        shutil.rmtree(here)

    die()
    return len(died)


def told(what: str, do: Callable[[], int]) -> None:
    begun = time.monotonic()
    print(f"{what}: {do()} deaths, {time.monotonic() - begun:.0f} s", flush=True)


def main(minutes: float, number: int) -> None:
    place = Path(tempfile.mkdtemp(prefix="restore-campaign-"))
    (place / "home").mkdir()
    os.environ.update(sealed_environment(place / "home"))
    # Skip syncs: data written by a killed process is not lost, only a power failure loses it.
    os.fsync = lambda descriptor: None
    DiskCalls.sync = lambda self, descriptor: None  # type: ignore[method-assign]
    try:
        for kind in KINDS:
            told(kind.__name__, lambda kind=kind: every_death(place / kind.__name__, kind))  # type: ignore[misc]
        with permissions_bind():
            told("an ordinary user", lambda: every_death(place / "user", DyingCalls))
        told("arbitrary", lambda: arbitrary_deaths(place, minutes, number))
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
