"""The status computed without git agrees with `git diff --name-status HEAD` on a copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.git.repository import Repository
from git_envhist.git.status import GitStatus, read_git_status
from tests.support.repository import Repo, make_repo

State = Callable[[Repo], object]
STATES: dict[str, State] = {}


def state(make: State) -> State:
    """A state of a repository."""
    STATES[make.__name__] = make
    return make


def view(repo: Repo) -> GitStatus:
    repository = Repository.open(str(repo.path))
    return read_git_status(repository.git, repository.root, repository.git_dir, repository.object_format)


def as_git_sees_it(repo: Repo) -> list[tuple[str, bytes]]:
    """Return git's output for a copy, because git would write to the original's index."""
    copy = Repo(repo.path.with_name("copy"), repo.env)
    repo.execute("cp", "-a", str(repo.path), str(copy.path))
    empty = copy.git("hash-object", "-t", "tree", "--stdin")
    against = (
        "HEAD" if copy.run_git("rev-parse", "-q", "--verify", "HEAD", check=False).status == 0 else empty
    )
    words = ["diff", "--name-status", "-z", "--no-renames", against, "--"]
    fields = copy.run_git(*words).stdout.split(b"\0")[:-1]
    shutil.rmtree(copy.path)
    return sorted(
        {(status.decode(), path) for status, path in zip(fields[::2], fields[1::2], strict=True)}, key=by_path
    )


def by_path(row: tuple[str, bytes]) -> bytes:
    return row[1]


def filled(repo: Repo) -> Repo:
    """Tracked files of each kind, all clean."""
    for number in range(6):
        repo.write(f"dir/f{number}", f"content {number}\n")
    repo.write("run.sh", "#!/bin/sh\n", 0o755)
    repo.write("lines", b"one\ntwo\n")
    repo.write("crlf", b"one\r\ntwo\r\n")
    (repo.path / "link").symlink_to("dir/f0")
    repo.commit("filled")
    return repo


@state
def clean(repo: Repo) -> None:
    pass


@state
def touched(repo: Repo) -> None:
    os.utime(repo.path / "dir/f1", (1, 1))


@state
def modified_with_the_same_size(repo: Repo) -> None:
    repo.write("dir/f1", "CONTENT 1\n")


@state
def staged(repo: Repo) -> None:
    repo.write("dir/f1", "staged\n")
    repo.write("new", "new\n")
    repo.git("add", "-A")


@state
def staged_and_changed_back(repo: Repo) -> None:
    repo.write("dir/f1", "staged\n")
    repo.git("add", "-A")
    repo.write("dir/f1", "content 1\n")


@state
def staged_and_changed_again(repo: Repo) -> None:
    repo.write("dir/f1", "staged\n")
    repo.git("add", "-A")
    repo.write("dir/f1", "and again\n")


@state
def deleted(repo: Repo) -> None:
    (repo.path / "dir/f1").unlink()


@state
def deleted_and_staged(repo: Repo) -> None:
    repo.git("rm", "-q", "dir/f1")


@state
def removed_from_the_index_alone(repo: Repo) -> None:
    repo.git("rm", "-q", "--cached", "dir/f1")


@state
def added_and_deleted(repo: Repo) -> None:
    repo.write("new", "new\n")
    repo.git("add", "new")
    (repo.path / "new").unlink()


@state
def renamed(repo: Repo) -> None:
    repo.git("mv", "dir/f1", "dir/g1")


@state
def whole_directory_gone(repo: Repo) -> None:
    shutil.rmtree(repo.path / "dir")


@state
def file_became_a_link(repo: Repo) -> None:
    (repo.path / "lines").unlink()
    (repo.path / "lines").symlink_to("app.py")


@state
def link_became_a_file(repo: Repo) -> None:
    (repo.path / "link").unlink()
    repo.write("link", "dir/f0")


@state
def link_retargeted(repo: Repo) -> None:
    (repo.path / "link").unlink()
    (repo.path / "link").symlink_to("dir/f1")


@state
def file_became_a_directory(repo: Repo) -> None:
    (repo.path / "lines").unlink()
    repo.write("lines/inside", "1")


@state
def directory_became_a_file(repo: Repo) -> None:
    shutil.rmtree(repo.path / "dir")
    repo.write("dir", "1")


@state
def directory_became_a_link_to_its_equal(repo: Repo) -> None:
    (repo.path / "dir").rename(repo.path / "elsewhere")
    (repo.path / "dir").symlink_to("elsewhere")


@state
def type_change_staged(repo: Repo) -> None:
    file_became_a_link(repo)
    repo.git("add", "-A")


@state
def chmod(repo: Repo) -> None:
    (repo.path / "run.sh").chmod(0o644)
    (repo.path / "lines").chmod(0o755)


@state
def chmod_that_git_does_not_see(repo: Repo) -> None:
    (repo.path / "run.sh").chmod(0o700)
    (repo.path / "lines").chmod(0o600)


@state
def chmod_staged_and_back(repo: Repo) -> None:
    repo.git("update-index", "--chmod=-x", "run.sh")


@state
def chmod_where_modes_do_not_count(repo: Repo) -> None:
    chmod(repo)
    repo.git("config", "core.fileMode", "false")


@state
def intent_to_add(repo: Repo) -> None:
    repo.write("new", "new\n")
    repo.write("empty", "")
    repo.git("add", "-N", "new", "empty")


@state
def skipped_and_absent(repo: Repo) -> None:
    repo.git("update-index", "--skip-worktree", "dir/f1")
    (repo.path / "dir/f1").unlink()


@state
def skipped_and_staged(repo: Repo) -> None:
    repo.write("dir/f1", "staged\n")
    repo.git("add", "dir/f1")
    repo.git("update-index", "--skip-worktree", "dir/f1")


@state
def assumed_unchanged(repo: Repo) -> None:
    repo.git("update-index", "--assume-unchanged", "dir/f1")
    repo.write("dir/f1", "changed behind git's back\n")


@state
def sparse_checkout(repo: Repo) -> None:
    repo.git("sparse-checkout", "set", "--cone", "nothing")
    repo.write("app.py", "changed\n")


@state
def sparse_index(repo: Repo) -> None:
    repo.git("sparse-checkout", "set", "--cone", "--sparse-index", "nothing")
    repo.write("app.py", "changed\n")


@state
def split_index(repo: Repo) -> None:
    repo.git("update-index", "--split-index")
    repo.write("lines", "changed\n")
    repo.write("new", "1\n")
    repo.git("add", "new")


@state
def index_of_version_4(repo: Repo) -> None:
    repo.git("update-index", "--index-version", "4")
    repo.write("lines", "changed\n")


@state
def line_ends_without_autocrlf(repo: Repo) -> None:
    repo.write("lines", b"one\r\ntwo\r\n")
    repo.write("crlf", b"one\ntwo\n")


@state
def line_ends_with_autocrlf(repo: Repo) -> None:
    repo.git("config", "core.autocrlf", "true")
    repo.write("lines", b"one\r\ntwo\r\n")


@state
def line_ends_with_an_attribute(repo: Repo) -> None:
    repo.write(".gitattributes", "lines text\ndir/* -text\n")
    repo.commit("attributes")
    repo.write("lines", b"one\r\ntwo\r\n")
    repo.write("dir/f1", b"content 1\r\n")


@state
def line_ends_and_more(repo: Repo) -> None:
    repo.git("config", "core.autocrlf", "input")
    repo.write("lines", b"one\r\nthree\r\n")


@state
def no_commit_yet(repo: Repo) -> None:
    repo.git("update-ref", "-d", "HEAD")
    repo.write("lines", "changed\n")


@state
def detached(repo: Repo) -> None:
    repo.git("checkout", "-q", "--detach")
    repo.write("lines", "changed\n")


@state
def odd_names(repo: Repo) -> None:
    for name in (b"new\nline", b"\xff\xfe", b'qu"ote', b" space ", "é".encode(), b"tab\there"):
        repo.write(name, "1")
    repo.git("add", "-A")


@state
def no_index(repo: Repo) -> None:
    (repo.path / ".git/index").unlink()


def conflict(repo: Repo) -> None:
    repo.git("checkout", "-q", "-b", "other")
    repo.write("lines", "theirs\n")
    repo.git("rm", "-q", "dir/f1")
    repo.commit("theirs")
    repo.git("checkout", "-q", "main")
    repo.write("lines", "ours\n")
    repo.write("dir/f1", "ours\n")
    repo.commit("ours")
    repo.git("merge", "-q", "other", check=False)


@state
def unmerged(repo: Repo) -> None:
    conflict(repo)


@state
def submodule_clean_and_moved(repo: Repo) -> None:
    for name in ("same", "moved", "gone"):
        inner = make_repo(repo.path / name)
        repo.git("add", name)
        if name == "moved":
            repo.git("commit", "-q", "-m", "with a submodule")
            inner.write("app.py", "2")
            inner.commit("moved on")
    repo.git("commit", "-q", "-m", "submodules")
    shutil.rmtree(repo.path / "gone")


@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_git_status_agrees_with_git_on_a_copy(repo: Repo, make: State) -> None:
    make(filled(repo))
    changed = view(repo).changed
    assert changed is not None
    assert [(change.status, change.path) for change in changed] == as_git_sees_it(repo)


@pytest.mark.parametrize("racy", [False, True])
def test_git_status_agrees_with_git_in_a_sha256_repository(tmp_path: Path, racy: bool) -> None:
    repo = make_repo(tmp_path / "long", object_format="sha256")
    filled(repo)
    if not racy:
        os.utime(repo.path / ".git/index", ns=(2**60, 2**60 * 2))
    staged(repo)
    repo.write("lines", "changed\n")
    changed = view(repo).changed
    assert changed is not None
    assert [(change.status, change.path) for change in changed] == as_git_sees_it(repo)
