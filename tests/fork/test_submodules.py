"""Submodules of a fork have separate git directories; git commands there do not change the original."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fork.test_fork import beside, fork
from tests.support.oracle import Listed, git_fsck, listing
from tests.support.repository import Repo, make_repo

ALLOWED = ("-c", "protocol.file.allow=always", "submodule", "-q")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a repository that has a submodule `lib` with another one inside."""
    above = tmp_path_factory.mktemp("submodules")
    deeper, library = make_repo(above / "deeper"), make_repo(above / "library")
    library.git(*ALLOWED, "add", str(deeper.path), "deep")
    library.git("commit", "-qm", "a submodule")
    repo = make_repo(above / "repo")
    repo.git(*ALLOWED, "add", str(library.path), "lib")
    repo.git("commit", "-qm", "a submodule")
    repo.git(*ALLOWED, "update", "--init", "--recursive")
    return above


@pytest.fixture
def parent(template: Path, tmp_path: Path) -> Repo:
    """Return a copy of that environment, captured."""
    # All paths in it are relative.
    shutil.copytree(template / "repo", tmp_path / "repo", symlinks=True)
    repo = Repo(tmp_path / "repo", dict(os.environ))
    repo.run("envlog", "capture", "start", check=True)
    return repo


def inside(repo: Repo, path: str = "lib") -> Repo:
    return Repo(repo.path / path, repo.env)


def captured(repo: Repo, words: str) -> str:
    output = json.loads(repo.run("envlog", "capture", "--json", words, check=True).out)
    return str(output["snapshot"]["timeline"])


def everything(repo: Repo) -> dict[bytes, Listed]:
    """Return the working tree and git directories of submodules, without times of objects, which git renews."""
    git = listing(repo.path / ".git/modules")
    for path in git:
        if b"/objects/" in path:
            git[path] = replace(git[path], mtime_ns=0)
    return {**listing(repo.path), **{b".git/modules/" + path: seen for path, seen in git.items()}}


def work_tree(repo: Repo, path: str) -> str:
    return os.path.realpath(inside(repo, path).git("rev-parse", "--show-toplevel"))


def test_git_works_in_a_fork_and_its_submodules(parent: Repo) -> None:
    (parent.path / "lib/app.py").write_text("changed\n")
    parent.run("envlog", "capture", "changed", check=True)
    made = fork(parent, "made")
    assert made.git("status", "--porcelain") == parent.git("status", "--porcelain") == " M lib"
    for path in ("lib", "lib/deep"):
        own, theirs = inside(made, path), inside(parent, path)
        assert own.git("status", "--porcelain", "--branch") == theirs.git("status", "--porcelain", "--branch")
        assert own.git("rev-parse", "HEAD") == theirs.git("rev-parse", "HEAD")
        assert work_tree(made, path) == os.path.realpath(own.path)
        assert git_fsck(own.path) == ""
    assert made.git("submodule", "status", "--recursive") == parent.git("submodule", "status", "--recursive")


def test_commits_in_a_submodule_of_a_fork_change_nothing_outside_it(parent: Repo) -> None:
    made = fork(parent, "made")
    before = everything(parent)
    (made.path / "lib/app.py").write_text("better\n")
    inside(made).git("commit", "-qam", "better")
    inside(made).git("checkout", "-q", "-b", "attempt")
    inside(made, "lib/deep").git("rm", "-q", "app.py")
    inside(made).git("gc", "-q", "--prune=now")
    made.git("add", "lib")
    assert made.git("diff", "--cached", "--name-only") == "lib"
    assert everything(parent) == before
    assert git_fsck(inside(parent).path) == ""


def test_forks_begin_with_equal_content_and_rewritten_pointers_are_a_second_snapshot(parent: Repo) -> None:
    output = json.loads(parent.run("envlog", "fork", "--json", "../one", check=True).out)
    one, two = beside(parent, "one"), fork(parent, "two")
    assert [item["path"] for item in output["relocated"]] == ["lib/.git", "lib/deep/.git"]
    assert output["pointing"] == []
    trees = []
    for made in (one, two):
        second, first = json.loads(made.run("envlog", "--json", check=True).out)
        assert second["intent"] == "relocated 2 paths"
        trees.append(made.git("rev-parse", f"{first['id']}^{{tree}}"))
        changed = made.run("envdiff", "--name-status", first["id"], second["id"], check=True).out
        assert changed.splitlines() == ["M\tlib/.git", "M\tlib/deep/.git"]
        assert made.run("envdiff", "--exit-code", "@", "now").status == 0
    assert trees[0] == trees[1]


def test_original_keeps_its_git_directories_when_a_fork_is_restored(parent: Repo) -> None:
    made = fork(parent, "made")
    (made.path / "lib/app.py").write_text("better\n")
    line = captured(made, "better")
    pointers = [(parent.path / path / ".git").read_bytes() for path in ("lib", "lib/deep")]
    planned = json.loads(parent.run("envrestore", "--json", "--dry-run", line, check=True).out)
    done = parent.run("envrestore", "--json", line, check=True)
    for told in (planned, json.loads(done.out)):
        assert [item["path"] for item in told["plan"]["left_alone"]] == ["lib/.git", "lib/deep/.git"]
    assert [(parent.path / path / ".git").read_bytes() for path in ("lib", "lib/deep")] == pointers
    assert (parent.path / "lib/app.py").read_text() == "better\n"
    assert parent.git("status", "--porcelain") == " M lib"
    assert work_tree(parent, "lib") == os.path.realpath(parent.path / "lib")
    parent.run("envrestore", "--undo", check=True)
    assert parent.git("status", "--porcelain") == ""
    assert parent.run("envrestore", "--redo").status == 0
    assert (parent.path / "lib/app.py").read_text() == "better\n"


def test_commits_of_a_submodule_are_fetched_from_a_fork(parent: Repo) -> None:
    made = fork(parent, "made")
    (made.path / "lib/app.py").write_text("better\n")
    inside(made).git("commit", "-qam", "better")
    line, commit = captured(made, "better"), inside(made).git("rev-parse", "HEAD")
    before = inside(parent).git("rev-parse", "HEAD")
    assert inside(parent).run_git("cat-file", "-e", commit, check=False).status != 0
    planned = parent.run("envrestore", "--dry-run", line, check=True)
    done = parent.run("envrestore", line, check=True)
    output = [one for one in done.err.splitlines() if commit[:10] in one]
    assert len(output) == 1
    assert f"is at {commit[:10]} there, which is missing here: git -C " in planned.err
    # The submodule did not change, and its commit is kept here after the fork is removed.
    assert inside(parent).git("rev-parse", "HEAD") == before
    parent.git("worktree", "remove", "--force", str(made.path))
    inside(parent).git("gc", "--prune=now", "--quiet")
    assert inside(parent).git("diff", "--stat", commit) == ""
    parent.execute(*shlex.split(output[0].partition("check it out: ")[2]))
    assert inside(parent).git("status", "--porcelain") == ""
    assert inside(parent).git("rev-parse", "HEAD") == commit


def test_commits_of_a_submodule_that_cannot_be_fetched_are_reported(parent: Repo) -> None:
    made = fork(parent, "made")
    (made.path / "lib/app.py").write_text("better\n")
    inside(made).git("commit", "-qam", "better")
    line, commit = captured(made, "better"), inside(made).git("rev-parse", "HEAD")
    module = Path(inside(parent).git("rev-parse", "--absolute-git-dir"))
    (module / "refs/adopted").write_text("in the way")
    done = parent.run("envrestore", line, check=True)
    (told,) = [one for one in done.err.splitlines() if commit[:10] in one]
    (module / "refs/adopted").unlink()
    parent.execute(*shlex.split(told.partition("missing here: ")[2]))
    assert inside(parent).git("rev-parse", "FETCH_HEAD") == commit


def test_missing_commits_are_reported_again_when_no_file_differs(parent: Repo) -> None:
    made = fork(parent, "made")
    (made.path / "lib/app.py").write_text("better\n")
    inside(made).git("commit", "-qam", "better")
    line, commit = captured(made, "better"), inside(made).git("rev-parse", "HEAD")
    inside(made).git("config", "transfer.hideRefs", "HEAD")
    first, again = (parent.run("envrestore", line, check=True) for _ in range(2))
    assert ("restored in" in first.out, "nothing to restore" in again.out) == (True, True)
    told, once_more = (
        [one for one in done.err.splitlines() if commit[:10] in one] for done in (first, again)
    )
    assert told == once_more != []
    inside(made).git("config", "--unset", "transfer.hideRefs")
    parent.execute(*shlex.split(told[0].partition("missing here: ")[2]))
    assert inside(parent).git("rev-parse", "FETCH_HEAD") == commit


def test_fork_restored_to_its_first_snapshot_keeps_its_git_directories(parent: Repo) -> None:
    made = fork(parent, "made")
    first = json.loads(made.run("envlog", "--json", check=True).out)[-1]["id"]
    (made.path / "lib/app.py").write_text("worse\n")
    made.run("envrestore", first, check=True)
    assert made.git("status", "--porcelain") == ""
    assert work_tree(made, "lib") == os.path.realpath(made.path / "lib")


def test_submodule_created_in_a_fork_does_not_use_the_fork(parent: Repo, template: Path) -> None:
    made = fork(parent, "made")
    made.git(*ALLOWED, "add", str(template / "library"), "more")
    line = captured(made, "one more")
    done = parent.run("envrestore", line, check=True)
    assert "another working tree" in parent.run("envrestore", "--dry-run", line, check=True).out + done.out
    assert (parent.path / "more/app.py").exists()
    assert not (parent.path / "more/.git").exists()
    assert parent.run_git("status").status == 0


def test_older_snapshot_is_forked_with_its_commit_of_a_submodule(parent: Repo) -> None:
    old = json.loads(parent.run("envlog", "--json", "-1", check=True).out)[0]["id"]
    was = inside(parent).git("rev-parse", "HEAD")
    inside(parent).write("app.py", "newer\n")
    inside(parent).git("commit", "-qam", "newer")
    moved = captured(parent, "the submodule moved")
    made = fork(parent, "old", old)
    assert inside(made).git("rev-parse", "HEAD") == was
    assert made.git("status", "--porcelain") == ""
    made = fork(parent, "new", moved)
    assert inside(made).git("rev-parse", "HEAD") == inside(parent).git("rev-parse", "HEAD") != was
    assert made.git("status", "--porcelain") == " M lib"


def test_fork_of_a_fork_has_its_own_git_directories_when_the_first_is_removed(parent: Repo) -> None:
    made = fork(parent, "made")
    again = fork(made, "again")
    assert work_tree(again, "lib") == os.path.realpath(again.path / "lib")
    last = json.loads(made.run("envlog", "--json", "-1", check=True).out)[0]["id"]
    parent.git("worktree", "remove", "--force", str(made.path))
    assert again.git("status", "--porcelain") == ""
    late = fork(parent, "late", last)
    assert late.git("status", "--porcelain") == ""
    assert work_tree(late, "lib") == os.path.realpath(late.path / "lib")


def test_fork_of_a_linked_worktree_does_not_use_it(parent: Repo) -> None:
    parent.git("worktree", "add", "-q", "../linked")
    linked = beside(parent, "linked")
    linked.git(*ALLOWED, "update", "--init")
    linked.run("envlog", "capture", "x", check=True)
    # A relative path from a sibling directory leads to the same git directory.
    made = fork(linked, "made")
    assert work_tree(made, "lib") == os.path.realpath(made.path / "lib")
    assert made.git("status", "--porcelain") == ""


def test_failed_fork_is_removed_with_its_submodules(parent: Repo) -> None:
    made = fork(parent, "made")
    parent.git("worktree", "remove", "--force", str(made.path))
    assert not list((parent.path / ".git").glob("worktrees/*"))
    assert parent.git("status", "--porcelain") == ""
    assert git_fsck(inside(parent).path) == ""


def test_alternate_objects_of_a_submodule_are_found_from_its_copy(parent: Repo, tmp_path: Path) -> None:
    module = parent.path / ".git/modules/lib"
    lent = tmp_path / "lent"
    os.rename(module / "objects", lent)
    (module / "objects/info").mkdir(parents=True)
    (module / "objects/info/alternates").write_text(os.path.relpath(lent, module / "objects") + "\n")
    made = fork(parent, "made")
    assert made.git("status", "--porcelain") == ""
    assert git_fsck(inside(made).path) == ""


def test_work_tree_of_a_submodule_is_set_where_git_reads_it(parent: Repo) -> None:
    inner = inside(parent)
    inner.git("config", "extensions.worktreeConfig", "true")
    inner.git("config", "--worktree", "core.worktree", "../../../lib")
    module = parent.path / ".git/modules/lib"
    parent.git("config", "--file", str(module / "config"), "--unset", "core.worktree")
    made = fork(parent, "made")
    assert work_tree(made, "lib") == os.path.realpath(made.path / "lib")


def test_missing_git_directory_is_reported(parent: Repo) -> None:
    os.rename(parent.path / ".git/modules/lib", parent.path / ".git/elsewhere")
    output = json.loads(parent.run("envlog", "fork", "--json", "../made", check=True).out)
    assert [one["path"] for one in output["pointing"]] == ["lib/.git", "lib/deep/.git"]
