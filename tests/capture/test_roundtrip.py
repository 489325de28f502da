"""A snapshot, read by plain git and a second reader, equals what find and sha256sum show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capture.helpers import HOWS, forget_cache, fresh_repo, snapshot, take, tree_of
from tests.end_to_end.captures import assert_holds, everything_of_git
from tests.support.depth import examples
from tests.support.oracle import git_fsck, listing
from tests.support.repository import Repo, make_repo
from tests.support.strategies import trees
from tests.support.trees import Directory, File, HardLink, Link, Node, build, inside


@settings(max_examples=examples(8, 40))
@given(trees(max_entries=40), st.sampled_from(("sha1", "sha256")))
def test_arbitrary_tree_is_captured_exactly(tree: dict[bytes, Node], object_format: str) -> None:
    with fresh_repo(object_format) as repo:
        build(tree, repo.path)
        before = listing(repo.path, top=True)
        assert_holds(repo, snapshot(repo).commit, before)
        assert listing(repo.path, top=True) == before
        assert git_fsck(repo.path) == ""


MIXED: dict[bytes, Node] = {
    **{b"many/f%03d" % n: File(b"%d" % n, 0o600 | n % 0o100) for n in range(300)},
    **{b"d%02d/sub/file" % n: File(b"same bytes everywhere") for n in range(60)},
    b"big": File(b"0123456789" * 200_000),
    b"first": File(b"shared"),
    b"d07/second": HardLink(b"first"),
    b"d50/sub/third": HardLink(b"first"),
    b"empty/also empty": Directory(0o711, 12345),
    b"link": Link(b"many"),
}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("how", HOWS)
def test_all_kinds_and_numbers_of_workers_make_the_same_tree(repo: Repo, how: str, workers: int) -> None:
    build(MIXED, repo.path)
    alone = tree_of(repo, "here")
    repo.git("config", "envhist.workers", str(workers))
    forget_cache(repo)
    taken = snapshot(repo, how)
    assert taken.tree == alone
    assert_holds(repo, taken.commit)
    assert git_fsck(repo.path) == ""


def test_nested_repositories_in_use_are_captured(repo: Repo) -> None:
    inner = make_repo(repo.path / "vendor/lib")
    inner.write("change", b"1")
    inner.git("stash", "-q", "-u")
    inner.git("branch", "feature/x")
    inner.git("pack-refs", "--all")
    make_repo(repo.path / "vendor/lib/deeper", commit=False)
    make_repo(repo.path / "bare.git", bare=True)
    module = make_repo(repo.path.parent / "module")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module.path), "module")
    assert_holds(repo, snapshot(repo).commit)
    assert git_fsck(repo.path) == ""
    inner.write("app.py", b"2")
    inner.git("commit", "-q", "-a", "-m", "another")
    assert_holds(repo, snapshot(repo).commit)


def test_devices_are_captured_with_their_numbers(repo: Repo) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can create devices")
    try:
        os.mknod(repo.path / "null", 0o020666, os.makedev(1, 3))
        os.mknod(repo.path / "loop", 0o060600, os.makedev(7, 300))
    except PermissionError:
        pytest.skip("this system does not allow devices")
    os.mkfifo(repo.path / "pipe")
    commit = snapshot(repo).commit
    assert_holds(repo, commit)
    shard = repo.git("cat-file", "-p", f"{commit}:.envhist/manifest/{top_shard()}")
    assert " c 0" in shard
    assert "r=1:3" in shard
    assert "r=7:300" in shard


def top_shard() -> str:
    import hashlib

    digest = hashlib.sha256(b"").hexdigest()
    return f"{digest[:2]}/{digest[2:40]}"


def test_owners_are_captured(repo: Repo) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change the owner of files")
    build(
        {b"dir/a": File(b"1"), b"dir/b": File(b"2"), b"dir/sub": Directory(), b"link": Link(b"x")}, repo.path
    )
    os.chown(repo.path / "dir", 1234, 5678)
    os.chown(repo.path / "dir/a", 1234, 0)
    os.chown(repo.path / "dir/sub", 0, 99)
    os.lchown(repo.path / "link", 7, 8)
    assert_holds(repo, snapshot(repo).commit)


def test_hard_link_to_a_file_outside_is_captured_as_a_file(repo: Repo, tmp_path: Path) -> None:
    repo.write("inside", b"1")
    os.link(repo.path / "inside", tmp_path / "outside")
    assert_holds(repo, snapshot(repo).commit)


def test_longest_possible_names_are_captured(repo: Repo) -> None:
    long: dict[bytes, Node] = {}
    for tail in (b"", b"%2e", b".git", "é".encode()):
        long[b"a" * (255 - len(tail)) + tail] = File(b"1")
    long[b".gitattributes" + b" " * 200] = File(b"2")
    long[b".git" + b"." * 251] = File(b"3")
    long[b"%20" * 85] = File(b"4")
    with inside(repo.path):
        build(long, ".")
    assert_holds(repo, snapshot(repo).commit)
    assert git_fsck(repo.path) == ""


def test_thousand_equal_files_are_stored_once(repo: Repo) -> None:
    build({b"d%d/f%d" % (n % 10, n): File(b"x" * 50_000) for n in range(1000)}, repo.path)
    taken = take(repo)
    assert taken.stored_bytes < 300_000
    assert taken.snapshot is not None
    assert_holds(repo, taken.snapshot.commit)


def test_capture_writes_only_to_its_own_directories(repo: Repo) -> None:
    repo.write("staged", b"1")
    repo.git("add", "staged")
    repo.write("staged", b"2")
    repo.git("status")
    work, git = listing(repo.path, top=True), everything_of_git(repo)
    times = access_times(repo)
    for how in HOWS:
        take(repo, how)
    assert everything_of_git(repo) == git
    assert listing(repo.path, top=True) == work
    assert access_times(repo) == times


def access_times(repo: Repo) -> list[str]:
    # The old access time is kept where O_NOATIME is permitted (owner, root).
    return sorted(
        repo.git("ls-files", "-z")
        and repo.execute(
            "find", ".", "-name", ".git", "-prune", "-o", "-type", "f", "-printf", "%A@ %p\n"
        ).out.split("\n")
    )
