"""The user's repository and files are unchanged byte for byte after commands, also with the variables of hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture
from tests.hygiene.user_data import belongings, busy, user_packs, worktree
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

HOOK_ENVIRONMENTS: dict[str, dict[str, str]] = {
    "plain": {},
    "commit hook": {"GIT_INDEX_FILE": ".git/index", "GIT_PREFIX": ""},
    "commit -a hook": {"GIT_INDEX_FILE": "{git}/next-index-1.lock", "GIT_DIR": "{git}"},
    "receive hook": {
        "GIT_DIR": "{git}",
        "GIT_OBJECT_DIRECTORY": "{common}/objects/tmp_objdir-incoming-x",
        "GIT_QUARANTINE_PATH": "{common}/objects/tmp_objdir-incoming-x",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": "{common}/objects",
    },
    "relative": {"GIT_DIR": ".git", "GIT_WORK_TREE": ".", "GIT_INDEX_FILE": ".git/index"},
    "odd": {
        "GIT_NAMESPACE": "elsewhere",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NOTES_REF": "refs/notes/elsewhere",
        "GIT_REPLACE_REF_BASE": "refs/elsewhere/",
        "GIT_SHALLOW_FILE": "/nonexistent",
        "GIT_GRAFT_FILE": "/nonexistent",
        "GIT_DEFAULT_HASH": "sha256",
    },
}


def settled(repo: Repo, git_dir: str, kind: str) -> dict[str, str]:
    """Return the variables of a hook and create the files and directories they name, as git does."""
    common = repo.git("rev-parse", "--path-format=absolute", "--git-common-dir")
    variables = {
        name: value.format(git=git_dir, common=common) for name, value in HOOK_ENVIRONMENTS[kind].items()
    }
    if kind == "receive hook":
        Path(variables["GIT_QUARANTINE_PATH"]).mkdir()
    if kind == "commit -a hook":
        Path(variables["GIT_INDEX_FILE"]).write_bytes(Path(git_dir, "index").read_bytes())
    return variables


@pytest.mark.parametrize("kind", HOOK_ENVIRONMENTS)
def test_capture_changes_no_user_data(repo: Repo, kind: str) -> None:
    busy(repo)
    variables = settled(repo, str(repo.path / ".git"), kind)
    before, packs = belongings(repo), user_packs(repo)
    snapshot = repo.run("envlog", "capture", "--porcelain", check=True, env=variables).out.strip()
    assert belongings(repo) == before
    assert user_packs(repo) == packs
    assert_holds(repo, snapshot)
    # The capture wrote nothing into git's quarantine directory.
    assert not list(repo.path.rglob("tmp_objdir*/*"))


@pytest.mark.parametrize("kind", ["plain", "commit hook", "commit -a hook", "receive hook"])
def test_capture_in_a_linked_worktree_changes_no_user_data(repo: Repo, kind: str) -> None:
    busy(repo)
    linked = worktree(repo, "linked", "other")
    linked.write("staged", b"1\n")
    linked.git("add", "staged")
    git_dir = linked.git("rev-parse", "--absolute-git-dir")
    variables = {"GIT_DIR": git_dir, **settled(repo, git_dir, kind)}
    if kind == "commit hook":
        variables["GIT_INDEX_FILE"] = f"{git_dir}/index"
    before, main = belongings(linked), belongings(repo)
    snapshot = linked.run("envlog", "capture", "--porcelain", check=True, env=variables).out.strip()
    assert (belongings(linked), belongings(repo)) == (before, main)
    assert "staged" in linked.git("ls-tree", "--name-only", snapshot).splitlines()
    assert "untracked" not in linked.git("ls-tree", "--name-only", snapshot).splitlines()
    assert git_fsck(repo.path) == ""


def test_list_diff_and_show_change_no_user_data(repo: Repo) -> None:
    busy(repo)
    capture(repo, "first")
    repo.write("untracked", b"more")
    before = belongings(repo)
    for words in (
        ("envlog",),
        ("envlog", "show"),
        ("envdiff",),
        ("envdiff", "-p"),
        ("envlog", "capture", "-n"),
    ):
        repo.run(*words, check=True)
    assert belongings(repo) == before


def test_dry_run_writes_no_file(repo: Repo) -> None:
    busy(repo)
    capture(repo)
    before = sorted(str(path) for path in (repo.path / ".git").rglob("*"))
    repo.run("envlog", "capture", "--dry-run", check=True)
    repo.run("envdiff", check=True)
    assert sorted(str(path) for path in (repo.path / ".git").rglob("*")) == before
