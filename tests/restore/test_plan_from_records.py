"""Plans made from scan records equal plans made from trees."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing

import pytest
from hypothesis import given, settings

from git_envhist.capture.pipeline import CaptureOptions
from git_envhist.diff.snapshot_walker import compare_directories, differing_directories
from git_envhist.errors import Damaged
from git_envhist.model import DirectoryPair, EnvPath, RestorePlan, Snapshot
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.restore.plan_steps import make_plan
from git_envhist.restore.planner import pairs_from_scan
from git_envhist.snapshots.reader import SnapshotReader
from tests.restore.engine import Engine
from tests.restore.test_round_trip import CHANGES
from tests.support.depth import examples
from tests.support.repository import Repo, make_repo
from tests.support.trees import Edit, Tree, apply, build


def plans(engine: Engine, tip: Snapshot, target: Snapshot) -> tuple[RestorePlan | None, RestorePlan | None]:
    """Return two plans from the present environment: one made from records, one from trees."""
    ends = bytes.fromhex(tip.id), bytes.fromhex(target.tree)
    capturing = engine.history.capturing
    with capturing.locked(CaptureOptions()), capturing.capture_tree(CaptureOptions()) as held:
        tree = bytes.fromhex(held.finish().tree)
        git = held.context.repository.git.with_objects(held.staging.path)
        with closing(capturing_contents(engine, git)) as contents:
            pairs = list(differing_directories(contents, *ends))
            assert held.environment.base == tip.id
            told = pairs_from_scan(
                pairs, held.environment.merged, lambda some: compare_directories(contents, *ends, some)
            )
            return _plan(told), _plan(differing_directories(contents, tree, ends[1]))


def capturing_contents(engine: Engine, git: object):  # type: ignore[no-untyped-def]
    contents = engine.contents()
    contents._git = git
    return contents


def _plan(pairs: Iterable[DirectoryPair] | None) -> RestorePlan | None:
    return None if pairs is None else make_plan(pairs)


def two_moments(repo: Repo) -> tuple[Engine, Snapshot, Snapshot]:
    engine = Engine(repo.path)
    for name in ("a", "b", "sub/c", "sub/d", "other/e"):
        repo.write(name, b"1")
    (repo.path / "sub" / "link").symlink_to("c")
    target = engine.capture()
    repo.write("a", b"2")
    repo.write("sub/c", b"2")
    return engine, target, engine.capture()


def is_told(repo: Repo, change: Callable[[], object]) -> bool:
    engine, target, tip = two_moments(repo)
    change()
    told, wanted = plans(engine, tip, target)
    assert told in (None, wanted)
    return told is not None


def test_changed_file_is_planned_from_records(repo: Repo) -> None:
    def write() -> None:
        repo.write("sub/c", b"3")
        repo.write("b", b"3")
        repo.write("other/e", b"3")
        os.chmod(repo.path / "sub" / "d", 0o700)
        os.utime(repo.path / "a", ns=(1, 1))

    assert is_told(repo, write)


def test_reverted_file_is_planned_from_records(repo: Repo) -> None:
    assert is_told(repo, lambda: repo.write("sub/c", b"1"))


class Counting:
    """Read objects and record their ids; one object cannot be read."""

    def __init__(self, contents: ObjectReader, gone: bytes = b"") -> None:
        self._contents, self._gone = contents, gone
        self.read_ids: list[bytes] = []

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        self.read_ids.append(oid)
        if oid == self._gone:
            raise Damaged("the object is missing")
        return self._contents.read(oid)


def test_equal_subtree_is_read_once_and_not_decoded(repo: Repo) -> None:
    engine, _, tip = two_moments(repo)
    ends = bytes.fromhex(tip.id), bytes.fromhex(tip.tree)
    with closing(engine.contents()) as contents:
        counting = Counting(contents)
        found = {pair.path: pair for pair in compare_directories(counting, *ends, [b"sub", b"other"])}
        known = {pair.path: pair for pair in differing_directories(contents, None, ends[1])}
    for path in (b"sub", b"other"):
        pair, whole = found[EnvPath(path)], known[EnvPath(path)].after
        assert whole is not None
        assert pair.before == pair.after == whole._replace(entries={})
    assert max(Counter(counting.read_ids[1:]).values()) == 1


@pytest.mark.parametrize("what", ["tip:sub", "shard"])
def test_equal_unreadable_subtree_is_reported(repo: Repo, what: str) -> None:
    engine, _, tip = two_moments(repo)
    ends = bytes.fromhex(tip.id), bytes.fromhex(tip.tree)
    with closing(engine.contents()) as contents:
        shard, tree = SnapshotReader(contents, ends[1]).ids(b"sub")
        broken = Counting(contents, shard if what == "shard" else tree)
        with pytest.raises(Damaged, match="the directory 'sub' cannot be read"):
            list(compare_directories(broken, *ends, [b"sub"]))


def test_unchanged_environment_is_planned_from_records(repo: Repo) -> None:
    assert is_told(repo, lambda: None)


def test_created_or_removed_directory_is_planned_from_trees(repo: Repo) -> None:
    assert not is_told(repo, lambda: repo.write("sub/new", b"3"))


def test_removed_file_is_planned_from_trees(repo: Repo) -> None:
    assert not is_told(repo, lambda: shutil.rmtree(repo.path / "sub"))


def test_entry_with_unusual_metadata_is_planned_from_trees(repo: Repo) -> None:
    assert not is_told(repo, lambda: os.link(repo.path / "b", repo.path / "sub" / "second"))


@given(CHANGES)
@settings(max_examples=examples(4, 12))
def test_scan_records_agree_with_full_comparison(
    tmp_path_factory, change: tuple[Tree, tuple[Edit, ...]]
) -> None:  # type: ignore[no-untyped-def]
    top = tmp_path_factory.mktemp("since") / "repo"
    make_repo(top, commit=False)
    tree, edits = change
    build(tree, top)
    engine = Engine(top)
    target = engine.capture()
    apply(edits[::2], top)
    tip = engine.capture()
    apply(edits[1::2], top)
    told, wanted = plans(engine, tip, target)
    assert told in (None, wanted)
