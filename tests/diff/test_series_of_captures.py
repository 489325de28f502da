"""Successive captures: the cache changes no result, and the counts are right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.api import EnvHistory
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.summary import count_changes
from git_envhist.model import ChangeCount
from tests.capture.helpers import HOWS, fresh_repo, settle, snapshot, take
from tests.end_to_end.captures import assert_holds
from tests.support.depth import examples
from tests.support.oracle import Listed, Listing, git_fsck, listing
from tests.support.repository import Repo
from tests.support.strategies import edits, trees
from tests.support.trees import (
    Append,
    Chmod,
    Directory,
    Edit,
    File,
    Forge,
    HardLink,
    Link,
    Node,
    Put,
    Remove,
    Rename,
    Touch,
    apply,
    build,
)


@contextmanager
def without_cache(repo: Repo) -> Iterator[None]:
    cache, aside = repo.path / ".git/envhist/cache", repo.path / ".git/envhist/cache-aside"
    cache.rename(aside)
    yield
    aside.rename(cache)


def reference(repo: Repo) -> str:
    """Return the present tree, captured without a cache."""
    with (
        without_cache(repo),
        EnvHistory.open(str(repo.path), workers="here", one_command=True).present() as present,
    ):
        return present.tree


BETWEEN = ("nothing", "if changed", "dry run", "toggle exclude", "present")


def meanwhile(repo: Repo, what: str) -> None:
    """Do something between an edit and its capture."""
    if what == "if changed":
        take(repo, if_changed=True)
    elif what == "dry run":
        take(repo, dry_run=True)
    elif what == "present":
        reference(repo)
    elif what == "toggle exclude" and repo.git("config", "envhist.exclude", check=False):
        repo.git("config", "--unset", "envhist.exclude")
    elif what == "toggle exclude":
        repo.git("config", "envhist.exclude", "src")


@settings(max_examples=examples(5, 20))
@given(st.data())
def test_incremental_captures_agree_with_full_captures(data: st.DataObject) -> None:
    tree = data.draw(trees(max_entries=15))
    with fresh_repo() as repo:
        repo.git("config", "envhist.workers", str(data.draw(st.integers(1, 3))))
        build(tree, repo.path)
        take(repo)
        for _ in range(data.draw(st.integers(1, 4))):
            # Edit without a pause, i.e. within one tick of many clocks.
            apply(data.draw(edits(tree, max_edits=5)), repo.path)
            meanwhile(repo, data.draw(st.sampled_from(BETWEEN)))
            assert snapshot(repo).tree == reference(repo)
        repo.git("config", "--unset", "envhist.exclude", check=False)
        assert_holds(repo, snapshot(repo).commit)
        assert git_fsck(repo.path) == ""


BASE: dict[bytes, Node] = {
    b"dir/file": File(b"aaaa"),
    b"dir/other": File(b"bbbb", xattrs=(("user.a", b"1"),)),
    b"dir/sub/deep/file": File(b"cccc"),
    b"dir/sub/linked": HardLink(b"dir/file"),
    b"link": Link(b"dir"),
    b"empty": Directory(),
    b"zdir/x": File(b"x"),
}
SERIES: dict[str, tuple[Edit, ...]] = {
    "nothing": (),
    "in place, size and time kept": (Forge(b"dir/other"), Forge(b"dir/sub/deep/file")),
    "through a hard link": (Append(b"dir/sub/linked", b"more"),),
    "mode": (Chmod(b"dir/other", 0o755), Chmod(b"dir/sub", 0o700)),
    "time": (Touch(b"dir/other", 5), Touch(b"dir/sub", -5), Touch(b"link", 7)),
    "a renamed directory": (Rename(b"dir", b"renamed"),),
    "two directories in each other's place": (
        Rename(b"dir", b"t"),
        Rename(b"zdir", b"dir"),
        Rename(b"t", b"zdir"),
    ),
    "a directory into another": (Rename(b"zdir", b"dir/sub/zdir"), Rename(b"dir/sub/deep", b"zdir")),
    "a file for a directory": (Remove(b"dir/sub"), Put(b"dir/sub", File(b"now a file"))),
    "a link for a directory": (Remove(b"dir"), Put(b"dir", Link(b"zdir"))),
    "a directory for a file": (Put(b"dir/file/inside", File(b"1")), Put(b"dir/other", Directory())),
    "a directory for a link": (Put(b"link", Directory(0o700)), Put(b"link/x", File(b"1"))),
    "a subtree gone": (Remove(b"dir"),),
    "a subtree gone and there again": (Remove(b"dir/sub"), Put(b"dir/sub/deep/file", File(b"cccc"))),
    "a new subtree": (Put(b"new/a/b/c", File(b"1")), Put(b"dir/sub/new/x", Directory())),
    "everything gone": (
        Remove(b"dir"),
        Remove(b"link"),
        Remove(b"empty"),
        Remove(b"zdir"),
        Remove(b"app.py"),
    ),
    "links split": (Remove(b"dir/file"), Put(b"dir/file", File(b"aaaa"))),
    "an empty directory filled": (Put(b"empty/x", File(b"1")),),
    "a directory emptied": (Remove(b"zdir/x"),),
}


@pytest.mark.parametrize("settled", [False, True], ids=["at once", "settled"])
@pytest.mark.parametrize("name", SERIES)
def test_each_kind_of_edit_is_captured_and_counted(repo: Repo, name: str, settled: bool) -> None:
    build(BASE, repo.path)
    if settled:
        settle(repo)
    before, old = snapshot(repo), listing(repo.path, top=True)
    apply(SERIES[name], repo.path)
    after = snapshot(repo)
    assert_holds(repo, after.commit)
    assert after.tree == reference(repo)
    assert after.changed == counted(repo, before.tree, after.tree) == naive(old, listing(repo.path, top=True))


@pytest.mark.parametrize("how", HOWS)
def test_workers_see_the_same_edits(repo: Repo, how: str) -> None:
    repo.git("config", "envhist.workers", "2")
    build({**BASE, **{b"m%d/f" % n: File(b"1") for n in range(50)}}, repo.path)
    for edit in SERIES.values():
        apply(edit, repo.path)
        assert snapshot(repo, how).tree == reference(repo)
    assert_holds(repo, snapshot(repo, how).commit)


def test_attribute_change_alone_is_captured(repo: Repo) -> None:
    build(BASE, repo.path)
    settle(repo)
    for path in ("dir/other", "dir"):
        try:
            os.setxattr(repo.path / path, "user.a", b"2")
        except OSError:
            pytest.skip("this file system keeps no attributes")
        before = snapshot(repo)
        assert before.changed == ChangeCount(modified=1)
        assert_holds(repo, before.commit)
    assert snapshot(repo).changed == ChangeCount()


def test_touch_is_kept_after_a_capture_without_snapshot(repo: Repo) -> None:
    build(BASE, repo.path)
    settle(repo)
    os.utime(repo.path / "dir/sub/deep/file", ns=(1, 12345))
    settle_point = take(repo, if_changed=True)
    assert settle_point.snapshot is None
    take(repo, if_changed=True)
    assert_holds(repo, snapshot(repo).commit)
    assert snapshot(repo).tree == reference(repo)


@settings(max_examples=examples(5, 20))
@given(st.data())
def test_counted_changes_agree_with_comparison(data: st.DataObject) -> None:
    tree = data.draw(trees(max_entries=15))
    with fresh_repo() as repo:
        build(tree, repo.path)
        first, old = snapshot(repo), listing(repo.path, top=True)
        assert first.changed == counted(repo, None, first.tree) == naive({b"": old[b""]}, old)
        apply(data.draw(edits(tree)), repo.path)
        second = snapshot(repo)
        new = listing(repo.path, top=True)
        assert second.changed == counted(repo, first.tree, second.tree) == naive(old, new)


def counted(repo: Repo, before: str | None, after: str) -> ChangeCount:
    return count_changes(
        compare(EnvHistory.open(str(repo.path), one_command=True).repository.git, before, after)
    )


def naive(old: Listing, new: Listing) -> ChangeCount:
    """Count changes from both listings."""
    before, after = worth_counting(old, new), worth_counting(new, old)
    modified = sum(essence(before[path]) != essence(after[path]) for path in before.keys() & after.keys())
    return ChangeCount(len(after.keys() - before.keys()), modified, len(before.keys() - after.keys()))


def worth_counting(there: Listing, on_the_other_side: Listing) -> Listing:
    """Return every path, without directories that exist on one side and are not empty."""
    filled = {os.path.dirname(path) for path in there if path}
    return {
        path: entry
        for path, entry in there.items()
        if entry.kind != "d"
        or path not in filled
        or (path in on_the_other_side and on_the_other_side[path].kind == "d")
    }


def essence(entry: Listed) -> Listed:
    # Times and hard links are not compared, nor the size of a directory, which has no meaning.
    return replace(entry, mtime_ns=0, linked=())
