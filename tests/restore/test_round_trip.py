"""Restores to another snapshot and back; find, sha256sum and rsync show exactly the restored snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.restore.engine import Engine
from tests.support.depth import examples
from tests.support.privileges import permissions_bind
from tests.support.repository import make_repo
from tests.support.strategies import edits, trees
from tests.support.trees import Edit, Tree, apply, build

CHANGES = trees().flatmap(lambda tree: st.tuples(st.just(tree), edits(tree)))


def go_there_and_back(top: Path, tree: Tree, changes: tuple[Edit, ...]) -> None:
    make_repo(top, commit=False)
    build(tree, top)
    engine = Engine(top)
    first, then = engine.capture(), engine.list_files()
    apply(changes, top)
    second, now = engine.capture(), engine.list_files()
    for before, after, wanted in ((second, first, then), (engine.capture, second, now)):
        outcome = engine.restore(before() if callable(before) else before, after)
        assert engine.list_files() == wanted
        assert outcome.differences == ()
        assert outcome.skipped == {}
        assert outcome.kept == ()
        assert engine.debris() == []


@given(CHANGES)
@settings(max_examples=examples(4, 10))
def test_random_environment_is_restored_and_undone(
    tmp_path_factory: pytest.TempPathFactory, change: tuple[Tree, tuple[Edit, ...]]
) -> None:
    go_there_and_back(tmp_path_factory.mktemp("any") / "repo", *change)


@given(CHANGES)
@settings(max_examples=examples(2, 6))
def test_random_environment_of_an_ordinary_user_is_restored(
    tmp_path_factory: pytest.TempPathFactory, change: tuple[Tree, tuple[Edit, ...]]
) -> None:
    with permissions_bind():
        go_there_and_back(tmp_path_factory.mktemp("user") / "repo", *change)
