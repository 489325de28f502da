"""The comparison made while the capture still runs, and its correction if the capture finds changes."""

from __future__ import annotations

from contextlib import closing

from git_envhist.diff.snapshot_walker import differing_directories, same_environment
from git_envhist.restore.planner import PredictedPairs
from tests.restore.engine import Engine
from tests.support.repository import Repo


def test_prediction_is_used_when_the_environment_equals_the_newest_snapshot(repo: Repo) -> None:
    engine = Engine(repo.path)
    (repo.path / "file").write_bytes(b"1")
    target = engine.capture()
    (repo.path / "file").write_bytes(b"2")
    tip = engine.capture()
    guess, trees = PredictedPairs(), [bytes.fromhex(moment.tree) for moment in (tip, target)]
    guess.make(engine.contents(), tip.id, target.tree)
    with closing(engine.contents()) as contents:
        found = guess.pairs(contents, *trees)
        assert found == list(differing_directories(contents, *trees))
        # No second comparison was made.
        assert guess.pairs(contents, *trees) is found


def test_wrong_prediction_is_corrected(repo: Repo) -> None:
    engine = Engine(repo.path)
    (repo.path / "file").write_bytes(b"1")
    target = engine.capture()
    (repo.path / "file").write_bytes(b"2")
    tip = engine.capture()
    (repo.path / "file").write_bytes(b"3")
    (repo.path / "more").mkdir()
    now = engine.capture()
    guess = PredictedPairs()
    guess.make(engine.contents(), tip.id, target.tree)
    with closing(engine.contents()) as contents:
        for before, after in ((now, target), (tip, now)):
            trees = [bytes.fromhex(moment.tree) for moment in (before, after)]
            assert guess.pairs(contents, *trees) == list(differing_directories(contents, *trees))
        assert not same_environment(contents, *(bytes.fromhex(moment.tree) for moment in (tip, now)))


def test_unreadable_snapshot_is_not_predicted(repo: Repo) -> None:
    engine = Engine(repo.path)
    target = engine.capture()
    guess = PredictedPairs()
    guess.make(engine.contents(), "ab" * 20, target.tree)
    trees = [bytes.fromhex(target.tree)] * 2
    with closing(engine.contents()) as contents:
        assert guess.pairs(contents, *trees) == []


def test_changed_mtime_makes_another_environment(repo: Repo) -> None:
    engine = Engine(repo.path)
    (repo.path / "file").write_bytes(b"1")
    one = engine.capture()
    (repo.path / "file").write_bytes(b"1")
    other = engine.capture()
    with closing(engine.contents()) as contents:
        assert not same_environment(contents, bytes.fromhex(one.tree), bytes.fromhex(other.tree))
