"""A timeline without git-envhist: git and dulwich read, check, check out and transfer it."""

from __future__ import annotations

from pathlib import Path

import pytest
from dulwich.repo import Repo as DulwichRepo

from tests.end_to_end.captures import assert_holds, capture, tip
from tests.end_to_end.test_capture_is_true import EVERYTHING
from tests.support.oracle import git_fsck, listing
from tests.support.repository import Repo, make_repo
from tests.support.trees import File, build


@pytest.fixture
def told(repo: Repo) -> tuple[Repo, str, str]:
    """Return two snapshots of a tree with every kind of file."""
    build(EVERYTHING, repo.path)
    first = capture(repo, "the first moment")
    repo.write("config/app.toml", b"a = 1\n")
    repo.write("plain", b"changed\n")
    return repo, first, capture(repo, "the second\n\nwith a body")


def test_git_log_is_the_history(told: tuple[Repo, str, str]) -> None:
    repo, first, second = told
    ref = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads")
    assert repo.git("log", "--format=%H %s", ref).splitlines() == [
        f"{second} the second",
        f"{first} the first moment",
    ]
    assert repo.git("log", "--format=%H", ref, "--", "config/app.toml") == second
    assert "+changed" in repo.git("log", "-p", ref, "--", "plain")


def test_git_show_and_diff_give_true_bytes(told: tuple[Repo, str, str]) -> None:
    repo, first, second = told
    assert repo.run_git("show", f"{second}:crlf").stdout == b"a\r\nb\r\n"
    assert repo.git("diff", "--name-only", first, second, "--", ".", ":!.envhist").split() == [
        "config/app.toml",
        "plain",
    ]


def test_git_worktree_checks_out_a_snapshot(told: tuple[Repo, str, str], tmp_path: Path) -> None:
    repo, _, second = told
    repo.git("-c", "core.autocrlf=false", "worktree", "add", "-q", "--detach", str(tmp_path / "then"), second)
    then, now = listing(tmp_path / "then"), listing(repo.path)
    for path, entry in now.items():
        if entry.kind in "fl" and path in then:
            assert (then[path].sha256, then[path].target) == (entry.sha256, entry.target), path
    assert {b"plain", b"a/deep/er/place/file", b"link", b"crlf", b"new\nline"} <= set(then)


def test_fsck_is_silent_and_a_strict_remote_accepts_the_history(
    told: tuple[Repo, str, str], tmp_path: Path
) -> None:
    repo, _, second = told
    assert git_fsck(repo.path) == ""
    remote = make_repo(tmp_path / "remote.git", bare=True)
    for key in ("receive.fsckObjects", "transfer.fsckObjects"):
        remote.git("config", key, "true")
    repo.git(
        "push",
        "-q",
        str(remote.path),
        "refs/envhist/heads/*:refs/envhist/heads/*",
        "refs/notes/envhist/*:refs/notes/envhist/*",
    )
    assert tip(remote) == second
    assert git_fsck(remote.path) == ""
    assert_holds(remote, second, listing(repo.path, top=True))


def test_neither_clone_nor_push_all_transfers_the_history(
    told: tuple[Repo, str, str], tmp_path: Path
) -> None:
    repo, _, _ = told
    remote = make_repo(tmp_path / "remote.git", bare=True)
    repo.git("push", "-q", "--all", str(remote.path))
    repo.git("clone", "-q", "--no-local", str(repo.path), str(tmp_path / "clone"))
    assert "envhist" not in remote.git("for-each-ref")
    assert "envhist" not in Repo(tmp_path / "clone", repo.env).git("for-each-ref")


def test_dulwich_reads_every_object(told: tuple[Repo, str, str]) -> None:
    repo, first, second = told
    with DulwichRepo(str(repo.path)) as opened:
        commit = opened[second.encode()]
        assert commit.parents == [first.encode()]
        tree = opened[commit.tree]
        mode, blob = tree.lookup_path(opened.__getitem__, b"plain")
        assert (mode, opened[blob].data) == (0o100644, b"changed\n")
        for path, _, oid in opened.object_store.iter_tree_contents(commit.tree):
            opened[oid].check()
            assert path


@pytest.mark.parametrize("kind", ["sha256", "reftable"])
def test_other_kinds_of_repositories_can_have_snapshots(tmp_path: Path, kind: str) -> None:
    if kind == "sha256":
        repo = make_repo(tmp_path / "r", object_format="sha256")
    else:
        repo = Repo(tmp_path / "r", make_repo(tmp_path / "probe").env)
        repo.path.mkdir()
        if repo.run_git("init", "-q", "--ref-format=reftable", check=False).status != 0:
            pytest.skip("this git knows no reftable")
        repo.commit()
    build({b"a/b": File(b"1"), b".gitattributes": File(b"x")}, repo.path)
    assert_holds(repo, capture(repo, "one"))
    assert_holds(repo, capture(repo, "two"))
    assert git_fsck(repo.path) == ""


def test_a_separate_git_directory_and_a_linked_worktree_have_timelines(repo: Repo, tmp_path: Path) -> None:
    repo.git("init", "-q", f"--separate-git-dir={tmp_path / 'elsewhere.git'}")
    first = capture(repo, "separate")
    assert repo.git("show", f"{first}:app.py") == "print('hello')"
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Repo(tmp_path / "linked", repo.env)
    linked.write("only here", b"1")
    second = capture(linked, "linked")
    refs = repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads").split()
    assert sorted(refs) == sorted([first, second])
    assert "only here" in repo.git("ls-tree", "--name-only", second).splitlines()
