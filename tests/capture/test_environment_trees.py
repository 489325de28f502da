"""Any series of edits gives the snapshots of a plain slow capture, with any kind and number of workers, with
the stat cache and with patched trees."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.api import EnvHistory
from git_envhist.capture.parallel_scan import RecordChanges
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.summary import count_changes
from git_envhist.model import ChangeCount, Snapshot
from git_envhist.snapshots.log import read_chain
from git_envhist.worktree.stat_cache import SHARD_SIZE
from tests.capture.helpers import HOWS, forget_cache, fresh_repo, settle, snapshot, take
from tests.end_to_end.captures import assert_holds
from tests.support.depth import examples
from tests.support.oracle import git_fsck
from tests.support.plain import plain_entries, stored_entries
from tests.support.repository import Repo
from tests.support.strategies import edits, trees
from tests.support.trees import (
    Append,
    Chmod,
    Directory,
    Edit,
    File,
    Forge,
    Link,
    Node,
    Put,
    Remove,
    Rename,
    Touch,
    apply,
    build,
)


def assert_is_plain(repo: Repo, taken: Snapshot) -> None:
    """Compare a snapshot with the slow capture, by its listing and by its manifest."""
    sealed = {path for path, how in assert_holds(repo, taken.commit).stored.items() if how == "sealed"}
    kept, seen = stored_entries(repo, taken.commit), plain_entries(repo.path)
    assert {path: kept[path] for path in kept.keys() - sealed} == {
        path: seen[path] for path in seen.keys() - sealed
    }


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("how", HOWS)
def test_any_series_of_edits_gives_the_snapshots_of_a_plain_capture(how: str, workers: int) -> None:
    @settings(max_examples=examples(2, 4) if how == "here" else examples(1, 2))
    @given(st.data())
    def series(data: st.DataObject) -> None:
        tree = data.draw(trees(max_entries=15))
        with fresh_repo() as repo:
            repo.git("config", "envhist.workers", str(workers))
            build(tree, repo.path)
            assert_is_plain(repo, snapshot(repo, how))
            for _ in range(data.draw(st.integers(1, 3))):
                apply(data.draw(edits(tree, max_edits=5)), repo.path)
                assert_is_plain(repo, snapshot(repo, how))

    series()


ODD_NAMES = (b".gitattributes", b"100%25", b"a b", b"line\nfeed", b"caf\xe9", b"f1", b"f10", b"f100")
LARGE: dict[bytes, Node] = {
    **{b"flat/f%d" % n: File(b"%d" % n) for n in range(240)},
    **{b"flat/" + name: File(name) for name in ODD_NAMES},
    b"flat/link": Link(b"f1"),
    **{b"wide/d%d/sub/file" % n: File(b"%d" % n) for n in range(230)},
    b"wide/.gitmodules/file": File(b"1"),
    b"flat/sub/x": File(b"x"),
}
FEW: dict[str, tuple[Edit, ...]] = {
    "nothing": (),
    "bytes": (Append(b"flat/f7", b"more"), Append(b"flat/f239", b"more")),
    "odd names": tuple(Append(b"flat/" + name, b"more") for name in ODD_NAMES),
    "by a rename": (Put(b"flat/new", File(b"new")), Remove(b"flat/f7"), Rename(b"flat/new", b"flat/f7")),
    "in place, size and time kept": (Forge(b"flat/f7"),),
    "modes": (Chmod(b"flat/f7", 0o755), Chmod(b"flat/f8", 0o600)),
    "times": (Touch(b"flat/f7", 1), Touch(b"flat", 2), Touch(b"wide/d7", 3)),
    "the directory's mode": (Chmod(b"flat", 0o700), Append(b"flat/f9", b"1")),
    "far below": (Append(b"wide/d7/sub/file", b"more"), Append(b"wide/.gitmodules/file", b"more")),
    "one more": (Put(b"flat/more", File(b"1")),),
    "one less": (Remove(b"flat/f7"), Remove(b"wide/d7")),
    "a link": (Remove(b"flat/f7"), Put(b"flat/f7", Link(b"f8"))),
    "a directory": (Remove(b"flat/f7"), Put(b"flat/f7/x", File(b"1"))),
    "no directory": (Remove(b"flat/sub"), Put(b"flat/sub", File(b"1"))),
    "a tree that becomes empty": (Remove(b"wide/d7/sub/file"),),
    "most of it": tuple(Append(b"flat/f%d" % n, b"more") for n in range(200)),
}


@pytest.mark.parametrize("name", FEW)
def test_patched_tree_of_a_large_directory_equals_a_rebuilt_one(repo: Repo, name: str) -> None:
    build(LARGE, repo.path)
    settle(repo)
    before = snapshot(repo)
    apply(FEW[name], repo.path)
    after = snapshot(repo)
    assert_is_plain(repo, after)
    assert after.changed == compared(repo, before, after)
    forget_cache(repo)
    assert snapshot(repo).tree == after.tree
    # The records also serve the next capture.
    apply(FEW["bytes"], repo.path)
    assert_is_plain(repo, snapshot(repo))
    assert git_fsck(repo.path) == ""


def compared(repo: Repo, before: Snapshot, after: Snapshot) -> ChangeCount:
    return count_changes(
        compare(EnvHistory.open(str(repo.path), one_command=True).repository.git, before.tree, after.tree)
    )


@settings(max_examples=examples(3, 8))
@given(st.data())
def test_counts_from_records_agree_with_a_comparison(data: st.DataObject) -> None:
    tree = data.draw(trees(max_entries=12))
    with fresh_repo() as repo:
        build(tree, repo.path)
        before = snapshot(repo)
        for _ in range(3):
            apply(data.draw(edits(tree, max_edits=3)), repo.path)
            after = snapshot(repo)
            assert after.changed == compared(repo, before, after)
            before = after


def test_content_changes_are_counted_without_a_comparison(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(LARGE, repo.path)
    settle(repo)

    def refuse(*_: object) -> None:
        raise AssertionError("the trees were compared")

    monkeypatch.setattr("git_envhist.capture.captured_tree.compare", refuse)
    for name, modified in (("nothing", 0), ("bytes", 2), ("modes", 2), ("times", 0), ("far below", 2)):
        apply(FEW[name], repo.path)
        assert snapshot(repo).changed == ChangeCount(modified=modified), name


def test_added_and_removed_paths_are_counted_without_a_comparison(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(LARGE, repo.path)
    settle(repo)

    def refuse(*_: object) -> None:
        raise AssertionError("the trees were compared")

    monkeypatch.setattr("git_envhist.capture.captured_tree.compare", refuse)
    steps: tuple[tuple[tuple[Edit, ...], ChangeCount], ...] = (
        ((Put(b"flat/more", File(b"1")), Append(b"flat/f7", b"more")), ChangeCount(1, 1)),
        ((Remove(b"wide/d7"),), ChangeCount(removed=1)),
        ((Put(b"new/deep/a", File(b"1")), Put(b"new/deep/b", Link(b"a"))), ChangeCount(added=2)),
        ((Put(b"new/empty/also", Directory()),), ChangeCount(added=1)),
        ((Remove(b"new"),), ChangeCount(removed=3)),
    )
    for number, (edits_made, expected) in enumerate(steps):
        apply(edits_made, repo.path)
        assert snapshot(repo).changed == expected, number


def test_removed_directories_without_a_record_are_not_counted() -> None:
    assert RecordChanges(gone={b"dir"}, removed=None).count() is None
    assert RecordChanges().count() == ChangeCount()


def test_returned_snapshot_equals_the_stored_one(repo: Repo) -> None:
    for _ in range(2):
        told = snapshot(repo, meta=(("key", "a%b\nc"),), name="a-name", external_id="42")
        git = EnvHistory.open(str(repo.path), one_command=True).repository.git
        assert [told] == list(read_chain(git, told.commit, limit=1, notes=False))
        repo.write("more", b"1")


def test_only_changed_shards_of_the_stat_cache_are_written(repo: Repo) -> None:
    build({b"d%03d/%s%03d" % (n, b"x" * 90, m): File(b"") for n in range(60) for m in range(40)}, repo.path)
    settle(repo)
    cache = repo.path / ".git/envhist/cache"
    before = {path.name for path in cache.glob("shard-*")}
    assert len(before) > 2
    assert all(path.stat().st_size <= 2 * SHARD_SIZE for path in cache.glob("shard-*"))
    settle(repo)
    assert {path.name for path in cache.glob("shard-*")} == before
    repo.write("d030/new", b"1")
    take(repo)
    after = {path.name for path in cache.glob("shard-*")}
    # Its own shard and that of the top.
    assert 0 < len(after - before) <= 2
    assert len(after) <= len(before) + 1


Damage = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:4] + bytes(len(data) - 4), id="zeros"),
        pytest.param(lambda data: bytes(8) + data[8:], id="no length"),
        pytest.param(lambda data: b"\xff" * 4 + data[4:], id="endless"),
        pytest.param(lambda data: data[: len(data) // 2], id="half"),
        pytest.param(lambda data: data[::-1], id="backwards"),
    ],
)
def test_wrong_stat_cache_with_valid_checksum_makes_capture_read_everything(
    repo: Repo, damage: Damage
) -> None:
    import json
    import zlib

    build({b"d%d/f" % n: File(b"%d" % n) for n in range(20)}, repo.path)
    settle(repo)
    cache = repo.path / ".git/envhist/cache"
    _, _, text = (cache / "head").read_bytes().partition(b"\n")
    told = json.loads(text)
    for shard in told["shards"]:
        data = damage((cache / shard[1]).read_bytes())
        (cache / shard[1]).write_bytes(data)
        shard[2] = zlib.crc32(data)
    text = json.dumps(told).encode()
    (cache / "head").write_bytes(b"%d\n%b" % (zlib.crc32(text), text))
    repo.write("d3/f", b"changed")
    assert_is_plain(repo, snapshot(repo))
    assert git_fsck(repo.path) == ""


def test_directory_replaced_by_a_link_to_itself_is_detected(repo: Repo, tmp_path: Path) -> None:
    # Its files have the same inodes and times by both paths.
    build({b"dir/sub/f": File(b"1"), b"other": Directory()}, repo.path)
    settle(repo)
    os.rename(repo.path / "dir", tmp_path / "outside")
    os.symlink(tmp_path / "outside", repo.path / "dir")
    taken = snapshot(repo)
    assert_is_plain(repo, taken)
    assert stored_entries(repo, taken.commit)[b"dir"][0] == "120000"
    assert not any(path.startswith(b"dir/") for path in stored_entries(repo, taken.commit))
    assert stat.S_ISLNK(os.lstat(repo.path / "dir").st_mode)
