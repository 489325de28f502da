"""A sample of random histories: taking a step out equals the same history without it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.restore.replay import History, Tools, find_tools, judge_forks, judge_history, random_steps

PLAIN = Tools(None, dict(os.environ))


def test_reverted_steps_equal_a_short_history_without_them(tmp_path: Path, hermetic: object) -> None:
    found = judge_history(tmp_path, 7, PLAIN, 2, 1, 6)
    assert found["equal"] + found["equal but for conflicts"] + found["not rebuilt"] == found["reverts"] == 3


@pytest.mark.full
def test_reverted_steps_equal_a_history_with_packages_without_them(tmp_path: Path, hermetic: object) -> None:
    tools = find_tools(tmp_path, packages=True)
    if tools.wheels is None:
        pytest.skip("npm or the registries are missing")
    assert judge_history(tmp_path, 3, tools, 2, 1)["reverts"] == 3


@pytest.mark.full
@pytest.mark.parametrize("seed", [3, 8])
def test_merging_forks_in_either_direction_gives_the_same_tree(
    tmp_path: Path, hermetic: object, seed: int
) -> None:
    assert judge_forks(tmp_path, seed, PLAIN, 12)["equal"] == 1


def test_judge_sees_what_a_revert_leaves(tmp_path: Path, hermetic: object) -> None:
    one = History(tmp_path, 7, PLAIN, 4)
    one.history.revert = lambda words, **options: None  # type: ignore[method-assign,assignment,misc]
    with pytest.raises(AssertionError, match="differs and is no conflict"):
        one.judge(0, 0)


def test_steps_are_the_same_for_a_seed() -> None:
    names = [[step.name for step in random_steps(random.Random(5), PLAIN, 20)] for _ in range(2)]
    assert names[0] == names[1]
