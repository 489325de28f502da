"""The submodules of a fork have git directories of their own: git works there, and on nothing of the original."""

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
    """A directory with a repository that has a submodule `lib`, with another in it."""
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
    """An environment of its own like that, captured."""
    # All that is named in there is named from where it is named.
    shutil.copytree(template / "repo", tmp_path / "repo", symlinks=True)
    repo = Repo(tmp_path / "repo", dict(os.environ))
    repo.run("envlog", "capture", "start", check=True)
    return repo


def inside(repo: Repo, path: str = "lib") -> Repo:
    return Repo(repo.path / path, repo.env)


def captured(repo: Repo, words: str) -> str:
    told = json.loads(repo.run("envlog", "capture", "--json", words, check=True).out)
    return str(told["snapshot"]["timeline"])


def everything(repo: Repo) -> dict[bytes, Listed]:
    """The working tree and the git directories of its submodules, but for the times of objects, which git renews."""
    git = listing(repo.path / ".git/modules")
    for path in git:
        if b"/objects/" in path:
            git[path] = replace(git[path], mtime_ns=0)
    return {**listing(repo.path), **{b".git/modules/" + path: seen for path, seen in git.items()}}


def work_tree(repo: Repo, path: str) -> str:
    return os.path.realpath(inside(repo, path).git("rev-parse", "--show-toplevel"))


def test_git_works_in_a_fork_and_in_its_submodules(parent: Repo) -> None:
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


def test_what_is_done_in_a_fork_s_submodule_is_done_nowhere_else(parent: Repo) -> None:
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


def test_forks_begin_with_one_content_and_the_pointers_are_a_second_moment(parent: Repo) -> None:
    told = json.loads(parent.run("envlog", "fork", "--json", "../one", check=True).out)
    one, two = beside(parent, "one"), fork(parent, "two")
    assert [item["path"] for item in told["relocated"]] == ["lib/.git", "lib/deep/.git"]
    assert told["pointing"] == []
    trees = []
    for made in (one, two):
        second, first = json.loads(made.run("envlog", "--json", check=True).out)
        assert second["intent"] == "relocated 2 paths"
        trees.append(made.git("rev-parse", f"{first['id']}^{{tree}}"))
        changed = made.run("envdiff", "--name-status", first["id"], second["id"], check=True).out
        assert changed.splitlines() == ["M\tlib/.git", "M\tlib/deep/.git"]
        assert made.run("envdiff", "--exit-code", "@", "now").status == 0
    assert trees[0] == trees[1]


def test_the_original_keeps_its_own_git_directories_when_a_fork_is_adopted(parent: Repo) -> None:
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


def test_the_commits_of_a_fork_s_submodule_come_along(parent: Repo) -> None:
    made = fork(parent, "made")
    (made.path / "lib/app.py").write_text("better\n")
    inside(made).git("commit", "-qam", "better")
    line, commit = captured(made, "better"), inside(made).git("rev-parse", "HEAD")
    before = inside(parent).git("rev-parse", "HEAD")
    assert inside(parent).run_git("cat-file", "-e", commit, check=False).status != 0
    planned = parent.run("envrestore", "--dry-run", line, check=True)
    done = parent.run("envrestore", line, check=True)
    told = [one for one in done.err.splitlines() if commit[:10] in one]
    assert len(told) == 1
    assert f"is at {commit[:10]} there, which is missing here: git -C " in planned.err
    # Nothing that the submodule had has moved, and what is gone over there is kept here.
    assert inside(parent).git("rev-parse", "HEAD") == before
    parent.git("worktree", "remove", "--force", str(made.path))
    inside(parent).git("gc", "--prune=now", "--quiet")
    assert inside(parent).git("diff", "--stat", commit) == ""
    parent.execute(*shlex.split(told[0].partition("check it out: ")[2]))
    assert inside(parent).git("status", "--porcelain") == ""
    assert inside(parent).git("rev-parse", "HEAD") == commit


def test_commits_of_a_submodule_that_cannot_be_brought_are_told(parent: Repo) -> None:
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


def test_whoever_tries_once_more_is_told_of_them_though_no_file_differs(parent: Repo) -> None:
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


def test_a_fork_that_goes_back_to_its_beginning_keeps_its_git_directories(parent: Repo) -> None:
    made = fork(parent, "made")
    first = json.loads(made.run("envlog", "--json", check=True).out)[-1]["id"]
    (made.path / "lib/app.py").write_text("worse\n")
    made.run("envrestore", first, check=True)
    assert made.git("status", "--porcelain") == ""
    assert work_tree(made, "lib") == os.path.realpath(made.path / "lib")


def test_a_submodule_that_only_the_fork_has_does_not_work_on_the_fork(parent: Repo, template: Path) -> None:
    made = fork(parent, "made")
    made.git(*ALLOWED, "add", str(template / "library"), "more")
    line = captured(made, "one more")
    done = parent.run("envrestore", line, check=True)
    assert "another working tree" in parent.run("envrestore", "--dry-run", line, check=True).out + done.out
    assert (parent.path / "more/app.py").exists()
    assert not (parent.path / "more/.git").exists()
    assert parent.run_git("status").status == 0


def test_an_older_moment_has_the_commit_of_a_submodule_that_it_had(parent: Repo) -> None:
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


def test_a_fork_of_a_fork_has_its_own_too_also_of_one_that_is_gone(parent: Repo) -> None:
    made = fork(parent, "made")
    again = fork(made, "again")
    assert work_tree(again, "lib") == os.path.realpath(again.path / "lib")
    last = json.loads(made.run("envlog", "--json", "-1", check=True).out)[0]["id"]
    parent.git("worktree", "remove", "--force", str(made.path))
    assert again.git("status", "--porcelain") == ""
    late = fork(parent, "late", last)
    assert late.git("status", "--porcelain") == ""
    assert work_tree(late, "lib") == os.path.realpath(late.path / "lib")


def test_a_fork_of_a_linked_worktree_does_not_work_on_that(parent: Repo) -> None:
    parent.git("worktree", "add", "-q", "../linked")
    linked = beside(parent, "linked")
    linked.git(*ALLOWED, "update", "--init")
    linked.run("envlog", "capture", "x", check=True)
    # From a place beside it the same words lead to the same git directory.
    made = fork(linked, "made")
    assert work_tree(made, "lib") == os.path.realpath(made.path / "lib")
    assert made.git("status", "--porcelain") == ""


def test_a_fork_is_taken_away_with_its_submodules(parent: Repo) -> None:
    made = fork(parent, "made")
    parent.git("worktree", "remove", "--force", str(made.path))
    assert not list((parent.path / ".git").glob("worktrees/*"))
    assert parent.git("status", "--porcelain") == ""
    assert git_fsck(inside(parent).path) == ""


def test_objects_that_a_submodule_borrows_are_found_from_its_copy(parent: Repo, tmp_path: Path) -> None:
    module = parent.path / ".git/modules/lib"
    lent = tmp_path / "lent"
    os.rename(module / "objects", lent)
    (module / "objects/info").mkdir(parents=True)
    (module / "objects/info/alternates").write_text(os.path.relpath(lent, module / "objects") + "\n")
    made = fork(parent, "made")
    assert made.git("status", "--porcelain") == ""
    assert git_fsck(inside(made).path) == ""


def test_a_submodule_s_work_tree_is_named_where_git_looks_for_it(parent: Repo) -> None:
    inner = inside(parent)
    inner.git("config", "extensions.worktreeConfig", "true")
    inner.git("config", "--worktree", "core.worktree", "../../../lib")
    module = parent.path / ".git/modules/lib"
    parent.git("config", "--file", str(module / "config"), "--unset", "core.worktree")
    made = fork(parent, "made")
    assert work_tree(made, "lib") == os.path.realpath(made.path / "lib")


def test_a_git_directory_that_is_gone_is_told(parent: Repo) -> None:
    os.rename(parent.path / ".git/modules/lib", parent.path / ".git/elsewhere")
    told = json.loads(parent.run("envlog", "fork", "--json", "../made", check=True).out)
    assert [one["path"] for one in told["pointing"]] == ["lib/.git", "lib/deep/.git"]
