"""`--head` moves HEAD where git would allow it, and moves no branch."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import Refused
from git_envhist.git.status import read_git_status
from git_envhist.model import Snapshot
from git_envhist.restore.git_state import HeadMove, move_head, plan_move
from tests.crash.faults import needs_strace, traced
from tests.support.gits import git_with_reftable
from tests.support.repository import Repo, make_repo
from tests.support.template import start_from


def captured(repo: Repo) -> tuple[EnvHistory, Snapshot]:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    taken = history.capture("then").snapshot
    assert taken is not None
    return history, taken


def plan(history: EnvHistory, snapshot: Snapshot, *, force: bool = False) -> HeadMove:
    own = history.repository
    view = read_git_status(own.git, own.root, own.git_dir, own.object_format)
    return plan_move(own, snapshot, view, force=force)


def commit(repo: Repo, name: str) -> str:
    repo.write(name, name.encode())
    repo.git("add", name)
    repo.git("commit", "-q", "-m", name)
    return repo.git("rev-parse", "HEAD")


def test_head_returns_to_its_branch_when_the_branch_is_still_there(repo: Repo) -> None:
    first = commit(repo, "one")
    history, snapshot = captured(repo)
    branch = repo.git("symbolic-ref", "HEAD")
    repo.git("checkout", "-q", "-b", "other")
    commit(repo, "two")
    move = plan(history, snapshot)
    assert move == HeadMove(first, branch)
    move_head(history.repository, move)
    assert repo.git("symbolic-ref", "HEAD") == branch
    assert repo.git("diff", "--cached", "--name-only") == ""
    assert (repo.path / "two").exists()


def test_head_is_detached_when_its_branch_has_new_commits(repo: Repo) -> None:
    first = commit(repo, "one")
    history, snapshot = captured(repo)
    branch = repo.git("symbolic-ref", "HEAD")
    second = commit(repo, "two")
    move = plan(history, snapshot)
    assert move == HeadMove(first, None)
    move_head(history.repository, move)
    assert repo.git("rev-parse", "HEAD", branch).split() == [first, second]


def test_branch_checked_out_in_another_worktree_is_not_used(repo: Repo, tmp_path: Path) -> None:
    commit(repo, "one")
    history, snapshot = captured(repo)
    branch = repo.git("symbolic-ref", "--short", "HEAD")
    repo.git("checkout", "-q", "--detach")
    repo.git("worktree", "add", "-q", str(tmp_path / "there"), branch)
    assert plan(history, snapshot).branch is None


@pytest.mark.parametrize("name", ["MERGE_HEAD", "rebase-merge", "CHERRY_PICK_HEAD", "index.lock"])
def test_operation_in_progress_is_not_disturbed(repo: Repo, name: str) -> None:
    commit(repo, "one")
    history, snapshot = captured(repo)
    (repo.path / ".git" / name).write_text("")
    with pytest.raises(Refused):
        plan(history, snapshot, force=True)


CONFLICTS = {
    "a rebase": ("rebase", "side"),
    "a merge": ("merge", "side"),
    "a cherry-pick": ("cherry-pick", "side"),
    "a revert": ("revert", "--no-edit", "HEAD~1"),
    "a bisection": ("bisect", "start"),
    "git am": ("am", "-3", "mail"),
}


def commit_conflicting_branches(repo: Repo) -> str:
    """Commit two branches that change the same file, and return the commit of the other one as a mail."""
    repo.write("file", b"one\n")
    repo.commit("one")
    repo.git("checkout", "-q", "-b", "side")
    repo.write("file", b"theirs\n")
    repo.commit("theirs")
    mail = repo.git("format-patch", "--stdout", "-1")
    repo.git("checkout", "-q", "-b", "ours", "HEAD~1")
    for text in ("ours\n", "again\n"):
        repo.write("file", text)
        repo.commit(text)
    return mail


@pytest.mark.parametrize("what", CONFLICTS)
@pytest.mark.parametrize("linked", [False, True])
def test_head_is_not_moved_during_a_git_operation(
    repo: Repo, tmp_path: Path, what: str, *, linked: bool
) -> None:
    mail = start_from(repo, commit_conflicting_branches)
    if linked:
        repo.git("worktree", "add", "-q", "-b", "there", str(tmp_path / "there"))
        repo = replace(repo, path=tmp_path / "there")
    first = repo.run("envlog", "capture", "--porcelain", check=True).out.strip()
    repo.write("mail", mail + "\n\n")
    repo.run_git(*CONFLICTS[what], check=False)
    repo.write("file", b"in the middle of it\n")

    done = repo.run("envrestore", "--head", first)
    assert (done.status, repo.read("file")) == (3, b"in the middle of it\n")
    assert f"{what} is in progress" in done.err
    assert "finish or abort it first; without --head the files can be restored" in done.err
    assert repo.run("envrestore", "--head", "--force", first).status == 3
    assert repo.run("envrestore", first).status == 0


@pytest.mark.parametrize("what", ["a cherry-pick", "a revert"])
def test_operation_in_progress_is_detected_with_reftable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    git_with_reftable().put_first(monkeypatch)
    repo = make_repo(tmp_path / "tables", commit=False)
    shutil.rmtree(repo.path / ".git")
    repo.git("init", "-q", "--template=", "--ref-format=reftable")
    repo.git("config", "user.name", "A")
    repo.git("config", "user.email", "a@example.com")
    for text in ("one\n", "two\n", "three\n"):
        repo.write("file", text)
        repo.commit(text)
    first = repo.run("envlog", "capture", "--porcelain", check=True).out.strip()
    words = {"a cherry-pick": ("cherry-pick", "HEAD~2"), "a revert": ("revert", "--no-edit", "HEAD~1")}
    repo.run_git(*words[what], check=False)
    repo.write("file", b"in the middle of it\n")
    done = repo.run("envrestore", "--head", first)
    assert done.status == 3
    assert f"{what} is in progress" in done.err


def test_staged_changes_are_not_lost_without_force(repo: Repo) -> None:
    commit(repo, "one")
    history, snapshot = captured(repo)
    repo.write("new", b"staged")
    repo.git("add", "new")
    with pytest.raises(Refused, match="1 staged"):
        plan(history, snapshot)
    assert plan(history, snapshot, force=True).commit == snapshot.head


def test_missing_code_commit_is_refused(repo: Repo) -> None:
    lost = commit(repo, "one")
    history, snapshot = captured(repo)
    branch = repo.git("symbolic-ref", "HEAD")
    repo.git("update-ref", "-d", branch)
    (repo.path / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    with pytest.raises(Refused, match="no longer exists"):
        plan(history, snapshot, force=True)
    unborn = history.capture("before any commit").snapshot
    assert unborn is not None
    with pytest.raises(Refused, match="no code commit"):
        plan(history, unborn, force=True)


@needs_strace
@pytest.mark.parametrize("mode", ["--continue", "--abort"])
def test_continue_and_abort_also_set_head_when_the_restore_was_killed_at_its_end(
    repo: Repo, mode: str
) -> None:
    first = commit(repo, "one")
    branch = repo.git("symbolic-ref", "HEAD")
    _, snapshot = captured(repo)
    repo.git("checkout", "-q", "-b", "other")
    second = commit(repo, "two")
    repo.write("one", b"edited")
    # Kill the restore right before it removes its journal.
    killing = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=unlink,unlinkat")
    path = repo.path / ".git/envhist/restore" / "journal"
    done = repo.run(
        "envrestore",
        "--head",
        snapshot.id,
        prefix=(*killing, "-P", str(path), "-e", "inject=unlink,unlinkat:signal=KILL"),
    )
    assert done.status != 0
    ended = repo.run("envrestore", mode)
    told = repo.git("rev-parse", "HEAD"), repo.git("symbolic-ref", "HEAD"), repo.read("one")
    assert ended.status == 0, ended.err
    assert told == (
        (first, branch, b"one") if mode == "--continue" else (second, "refs/heads/other", b"edited")
    )


@needs_strace
@pytest.mark.parametrize("staged", [False, True])
def test_continued_restore_moves_head(repo: Repo, *, staged: bool) -> None:
    first = commit(repo, "one")
    branch = repo.git("symbolic-ref", "HEAD")
    _, snapshot = captured(repo)
    repo.git("checkout", "-q", "-b", "other")
    commit(repo, "two")
    repo.write("one", b"edited")
    # The second rename is the first exchange: the journal exists, and nothing is swapped yet.
    repo.run("envrestore", "--head", snapshot.id, prefix=traced("renameat2", "signal=KILL", "2"))
    assert repo.git("symbolic-ref", "HEAD") == "refs/heads/other"
    if staged:
        repo.write("three", b"3")
        repo.git("add", "three")
    done = repo.run("envrestore", "--continue")
    assert repo.read("one") == b"one"
    if staged:
        assert (done.status, repo.git("symbolic-ref", "HEAD")) == (5, "refs/heads/other")
        assert "HEAD was not moved: there are staged changes now" in done.err
    else:
        assert (done.status, repo.git("symbolic-ref", "HEAD")) == (0, branch)
        assert repo.git("rev-parse", "HEAD") == first
        assert repo.git("diff", "--cached", "--name-only") == ""
