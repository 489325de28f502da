"""A short random walk with a new seed in each run; `python -m tests.walk` is the campaign."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.walk.run import run_history, shorten
from tests.walk.steps import Step, draw_history
from tests.walk.world import World, Wrong


def test_random_history_agrees_with_the_model(tmp_path: Path) -> None:
    seed = secrets.randbelow(1 << 32)
    steps = draw_history(seed, 45)
    failure = run_history(steps, tmp_path)
    if failure is not None:
        steps, failure = shorten(steps, failure, tmp_path, tries=60)
    assert failure is None, f"seed {seed}, step {failure.at}: {failure.message}\n" + "\n".join(
        map(str, steps)
    )


def test_walk_notices_a_restore_that_leaves_a_path_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.carry_out(Step("capture"))
    world.shots[0].tree = {**world.shots[0].tree, b"more": world.shots[0].tree[b"app.py"]}
    with pytest.raises(Wrong, match="b'more': expected f"):
        world.check_all()
