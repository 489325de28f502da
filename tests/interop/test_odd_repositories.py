"""Unusual repositories (clones, submodules, mounts etc.): all commands work, and the history is stored completely."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture
from tests.interop.serving import SPOKEN, assert_commands_work, assert_reads, linked
from tests.support.needs import require
from tests.support.oracle import git_fsck, listing
from tests.support.repository import Repo, make_repo


def git_changed(repo: Repo) -> list[tuple[str, str]]:
    """Return the changes that git reported in the newest snapshot."""
    card = json.loads(repo.run("envlog", "show", "--json", check=True).out)
    return [(change["status"], change["path"]) for change in card["git_changed"]]


def clone(repo: Repo, *words: str) -> Repo:
    place = repo.path.with_name("clone")
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("clone", "-q", *words, str(place))
    return Repo(place, dict(repo.env))


@pytest.fixture
def grown(repo: Repo) -> Repo:
    """Return a repository with several commits and directories."""
    for number in range(4):
        for directory in ("in", "out", "out/deep"):
            repo.write(f"{directory}/file{number}", f"{directory} {number}\n" * 20)
        repo.write("app.py", f"print({number})\n")
        repo.commit(f"commit {number}")
    return repo


def test_commands_work_with_a_separate_git_directory(repo: Repo, tmp_path: Path) -> None:
    repo.git("init", "-q", f"--separate-git-dir={tmp_path / 'apart.git'}")
    assert_commands_work(repo)


def test_git_directory_with_another_name_is_not_captured(repo: Repo) -> None:
    repo.git("init", "-q", f"--separate-git-dir={repo.path / 'meta data'}")
    repo.write(".git", b"gitdir: meta data\n")
    first = capture(repo, "first")
    assert_holds(repo, first, listing(repo.path, top=True, without=(b".git", b"meta data")))
    assert "meta data" not in repo.git("ls-tree", "-r", "--name-only", first)


def test_commands_work_with_a_bare_repository_and_git_work_tree(tmp_path: Path) -> None:
    bare = make_repo(tmp_path / "dotfiles.git", bare=True)
    (tmp_path / "files").mkdir()
    places = {"GIT_DIR": str(bare.path), "GIT_WORK_TREE": str(tmp_path / "files")}
    repo = Repo(tmp_path / "files", {**bare.env, **places})
    repo.write("profile", b"x\n")
    repo.git("add", "profile")
    repo.git("commit", "-q", "-m", "dotfiles")
    assert_commands_work(repo, bare.path)
    assert bare.run("envlog", "--format=%H", check=True).out == repo.run("envlog", "--format=%H").out
    output = bare.run("envlog", "capture")
    assert (output.status, output.err.splitlines()[0]) == (
        128,
        f"error: '{bare.path}' is a bare repository: there is no environment to capture",
    )


def test_commands_work_with_core_worktree(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "here")
    (tmp_path / "there").mkdir()
    repo.git("config", "core.worktree", "../../there")
    there = Repo(tmp_path / "there", {**repo.env, "GIT_DIR": str(repo.path / ".git")})
    there.write("app.py", b"elsewhere\n")
    assert_commands_work(there, repo.path)
    assert ("M", "app.py") in git_changed(there)
    # Called next to the repository, git and git-envhist use the configured working tree.
    snapshot = capture(Repo(repo.path, repo.env), "from beside it")
    assert_holds(there, snapshot)


def test_commands_work_in_a_shallow_clone(grown: Repo) -> None:
    shallow = clone(grown, "--depth=2", f"file://{grown.path}")
    assert_commands_work(shallow)
    # The history does not depend on the shallow boundary, so removing the boundary keeps it valid.
    shallow.git("fetch", "-q", "--unshallow")
    assert len(shallow.run("envlog", "--oneline", check=True).out.splitlines()) == 2
    assert git_fsck(shallow.path) == ""


def test_commands_work_in_a_partial_clone(grown: Repo) -> None:
    partial = clone(grown, "--filter=blob:none", "--sparse", f"file://{grown.path}")
    partial.git("sparse-checkout", "set", "in")
    missing = partial.git("rev-list", "--objects", "--all", "--missing=print").count("\n?")
    assert missing > 0
    first, second = assert_commands_work(partial)
    assert git_changed(partial) == []
    assert partial.git("rev-list", "--objects", "--all", "--missing=print").count("\n?") == missing
    # All objects of our snapshots are stored locally; none is left to the promisor.
    shutil.rmtree(grown.path)
    for moment in (first, second):
        assert "?" not in partial.git("rev-list", "--objects", "--missing=print", moment)
    partial.write("in/file0", b"changed\n")
    capture(partial, "the origin was removed")
    assert git_changed(partial) == [("M", "in/file0")]
    assert partial.run("envlog", "show", first, "--", "in/file0", check=True).out == "in 0\n" * 20


@pytest.mark.parametrize("shape", ["cone", "patterns"])
def test_sparse_checkout_is_not_reported_as_deletion(grown: Repo, shape: str) -> None:
    if shape == "cone":
        grown.git("sparse-checkout", "init", "--cone")
        # With a sparse index, one entry represents a whole directory.
        grown.git("config", "index.sparse", "true")
        grown.git("sparse-checkout", "set", "in")
    else:
        grown.git("config", "core.sparseCheckout", "true")
        grown.write(".git/info/sparse-checkout", b"/in/\n")
        grown.git("read-tree", "-m", "-u", "HEAD")
    assert not (grown.path / "out").exists()
    assert_commands_work(grown)
    assert git_changed(grown) == []
    (grown.path / "in/file1").unlink()
    # A file outside the sparse patterns is captured like any other.
    grown.write("out/file2", b"by hand\n")
    assert_holds(grown, capture(grown, "a real deletion"))
    assert ("D", "in/file1") in git_changed(grown)
    assert not [path for status, path in git_changed(grown) if status == "D" and path != "in/file1"]


@pytest.mark.parametrize("how", ["--shared", "--reference"])
def test_snapshots_do_not_depend_on_alternates(grown: Repo, tmp_path: Path, how: str) -> None:
    words = [how] if how == "--shared" else [f"--reference={grown.path}", "--no-local"]
    borrower = clone(grown, *words, str(grown.path))
    assert (borrower.path / ".git/objects/info/alternates").exists()
    first, second = assert_commands_work(borrower)
    shutil.rmtree(grown.path)
    (borrower.path / ".git/objects/info/alternates").unlink()
    assert "missing" not in borrower.git("rev-list", "--objects", "--quiet", second)
    assert_holds(borrower, second)
    assert_reads(borrower, first, second)
    # The user's commits were lost with the other repository, but a capture still works.
    done = borrower.run("envlog", "capture", "--porcelain", "-m", "all alone")
    assert done.status == 0, done.err
    assert_holds(borrower, done.out.strip())


def test_commands_work_in_a_repository_used_as_alternate(grown: Repo) -> None:
    borrower = clone(grown, "--shared", str(grown.path))
    assert_commands_work(grown)
    assert git_fsck(borrower.path) == ""
    assert "envhist" not in borrower.git("for-each-ref")


@pytest.fixture
def parent(repo: Repo, tmp_path: Path) -> Repo:
    """Return a repository with a submodule `lib`."""
    library = make_repo(tmp_path / "library")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "lib")
    repo.commit("with a submodule")
    return repo


def test_files_of_a_submodule_are_captured(parent: Repo) -> None:
    assert_commands_work(parent)
    assert git_changed(parent) == []
    parent.write("lib/app.py", b"changed inside\n")
    snapshot = capture(parent, "work in the submodule")
    assert_holds(parent, snapshot)
    assert parent.git("show", f"{snapshot}:lib/app.py") == "changed inside"
    entries = parent.git("ls-tree", "-r", snapshot).splitlines()
    assert not [line for line in entries if line.startswith("160000")], "no gitlink is stored"


def test_submodule_has_its_own_timeline(parent: Repo) -> None:
    outside = capture(parent, "in the parent")
    inside = Repo(parent.path / "lib", parent.env)
    first, second = assert_commands_work(inside)
    assert inside.run("envlog", "--format=%H", check=True).out.split() == [second, first]
    assert parent.run("envlog", "--format=%H", check=True).out.split() == [outside]
    # The refs of the submodule are not stored in the parent.
    assert first not in parent.git("for-each-ref", "--format=%(objectname)")


def test_submodule_that_was_not_fetched_is_captured_as_an_empty_directory(parent: Repo) -> None:
    plain = clone(parent, str(parent.path))
    assert_commands_work(plain)
    assert git_changed(plain) == []
    assert list((plain.path / "lib").iterdir()) == []


def test_commands_work_with_every_cache_of_git(grown: Repo) -> None:
    for key, value in {
        "feature.manyFiles": "true",
        "core.multiPackIndex": "true",
        "core.commitGraph": "true",
    }.items():
        grown.git("config", key, value)
    grown.git("update-index", "--index-version=4", "--split-index", "--untracked-cache")
    grown.write("in/file1", b"in the part of the index that is split off\n")
    grown.git("add", "in/file1")
    grown.git("repack", "-q", "-a", "-d", "-b")
    grown.git("multi-pack-index", "write")
    grown.git("commit-graph", "write", "--reachable", "--split", "--changed-paths")
    first, _ = assert_commands_work(grown)
    assert git_changed(grown) == [("M", "in/file1")]
    # Write all caches again, now including our packs.
    grown.git("multi-pack-index", "write")
    grown.git("commit-graph", "write", "--reachable", "--split=replace")
    assert git_fsck(grown.path) == ""
    assert grown.run("envlog", "show", first, "--", SPOKEN, check=True).stdout == b"1\r\n"


@contextmanager
def elsewhere(near: Path) -> Iterator[Path]:
    """Create a directory on another file system; skip the test if there is none."""
    for place in ("/dev/shm", f"/run/user/{os.geteuid()}", "/var/tmp"):
        if os.path.isdir(place) and os.access(place, os.W_OK) and os.stat(place).st_dev != near.stat().st_dev:
            with tempfile.TemporaryDirectory(dir=place) as made:
                yield Path(made)
            return
    pytest.skip("no second writable file system")


def test_commands_work_with_a_git_directory_on_another_file_system(repo: Repo) -> None:
    with elsewhere(repo.path) as place:
        assert_commands_work(clone(repo, f"--separate-git-dir={place / 'apart.git'}", str(repo.path)))


def test_commands_work_with_a_linked_worktree_on_another_file_system(repo: Repo) -> None:
    with elsewhere(repo.path) as place:
        assert_commands_work(linked(repo, place / "linked", "-b", "other"))


MOUNTED = """\
mount --make-rprivate / && mount -t tmpfs tmpfs .git && tar --no-same-owner -xf ../git.tar && exec "$@"
"""
WHOLE_STORY = """\
set -e
first=$(git-envlog capture --porcelain -m first); echo 2 > file
second=$(git-envlog capture --porcelain -m second)
test "$(git-envlog --format=%H | tr '\\n' ' ')" = "$second $first "
test "$(git-envdiff --name-status "$first" "$second")" = "$(printf 'M\\tfile')"
test "$(git-envlog show "$first" -- file)" = 1
test -z "$(git fsck --strict --full --no-dangling --no-progress 2>&1)"
git show "$second:file"
"""


def test_commands_work_with_a_mounted_git_directory(repo: Repo) -> None:
    require("unshare")
    repo.write("file", b"1\n")
    repo.execute("tar", "-cf", "../git.tar", ".git")
    before = listing(repo.path)
    script = ["sh", "-c", MOUNTED, "sh", "sh", "-c", WHOLE_STORY]
    done = repo.execute("unshare", "--mount", "--map-root-user", *script, check=False)
    if "unshare" in done.err or "mount:" in done.err:
        pytest.skip(f"cannot mount here: {done.err}")
    assert (done.status, done.out) == (0, "2\n"), done.err
    repo.write("file", b"1\n")
    assert listing(repo.path).keys() == before.keys()


def test_directory_of_another_owner_is_refused_until_the_user_trusts_it(repo: Repo) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change the owner of a directory")
    subprocess.run(["chown", "-R", "12345", repo.path], check=True)
    of_git = repo.execute("git", "status", check=False)
    for words in (("envlog", "capture"), ("envlog",), ("envdiff",)):
        done = repo.run(*words)
        assert (done.status, of_git.status, done.out) == (128, 128, "")
        assert "error: detected dubious ownership in repository at" in done.err
        assert f"git config --global --add safe.directory {repo.path}" in done.err
    assert repo.git("config", "--global", "--get-all", "safe.directory", check=False) == ""
    repo.git("config", "--global", "--add", "safe.directory", str(repo.path))
    assert_commands_work(repo, None)


# Nested directories with names that can break shells, lists of paths and terminals.
ODD_PATHS = {
    "words": [
        "-n",
        "trailing space ",
        "$HOME `id` ;&|",
        "colon:and\"quote'",
        "tab\tand\\\\slash",
        "*?[a]!",
        "#%41",
        "a.git",
    ],
    "letters": ["\u00e4\u4e2d \U0001f40d", os.fsdecode(b"latin-\xe9"), "\x1b[2J\x07"],
    "lines": ["new\nline", "two\nlines\n"],
}


@pytest.mark.parametrize("kind", ODD_PATHS)
def test_commands_work_in_directories_with_odd_names(tmp_path: Path, kind: str) -> None:
    repo = make_repo(tmp_path.joinpath(*ODD_PATHS[kind]))
    assert_commands_work(repo)
    newest = repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads")
    below = SPOKEN.split("/")[0]
    assert repo.run("envlog", "--format=%H", "-1", cwd=below, check=True).out.strip() == newest
    assert repo.run("envlog", "show", "--", "spoken", cwd=below, check=True).stdout == b"2\r\n"
    (repo.path / below / "inner").mkdir()
    linked_there = linked(repo, repo.path.with_name("linked\nthere"), "-b", "other")
    assert_holds(linked_there, capture(linked_there, "beside it"))


def test_main_working_tree_inside_a_linked_one_is_not_captured(repo: Repo, tmp_path: Path) -> None:
    linked_tree = tmp_path / "linked"
    repo.git("worktree", "add", "-q", str(linked_tree), "-b", "other")
    inside = linked_tree / "main"
    repo.path.rename(inside)
    subprocess.run(
        ["git", "worktree", "repair", str(linked_tree)],
        cwd=inside,
        env=repo.env,
        check=True,
        capture_output=True,
    )
    outer = Repo(linked_tree, repo.env)
    outer.write("own", b"1")
    snapshot = capture(outer, "outer")
    names = outer.git("ls-tree", "-r", "--name-only", snapshot).splitlines()
    assert "own" in names
    assert not [name for name in names if name.startswith("main/")]
