"""An unsigned snapshot is not written into a directory whose files git or another version control program uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from git_envhist.git.process import Git
from git_envhist.restore.inspect_unsigned import PlaceObeyed, refuse_obeyed_place
from tests.end_to_end.captures import capture
from tests.restore.unsigned import make_stranger
from tests.support.repository import Repo, make_repo


def refusal(repo: Repo, directory: str) -> str:
    try:
        refuse_obeyed_place(str(repo.path / directory), Git(str(repo.path / ".git"), None), str(repo.path))
    except PlaceObeyed as refused:
        return refused.message
    return ""


@pytest.mark.parametrize(
    "directory",
    [
        ".git",
        ".git/hooks",
        ".git/new/deep",
        ".GIT/x",
        "sub/.git",
        ".git./x",
        ".hg/x",
        "sub/.jj",
        "_darcs/prefs",
        "hooked/x",
    ],
)
def test_directory_used_by_version_control_is_refused(repo: Repo, directory: str) -> None:
    repo.git("config", "core.hooksPath", "hooked")
    assert "programs obey" in refusal(repo, directory)


@pytest.mark.parametrize(
    "directory", ["../beside", "new/deep", ".github/workflows", "git", "hooks", "objects/x"]
)
def test_other_directory_is_not_refused(repo: Repo, directory: str) -> None:
    assert refusal(repo, directory) == ""


def test_directory_used_by_version_control_is_recognized_through_links_and_in_bare_repositories(
    repo: Repo, tmp_path: Path
) -> None:
    bare = make_repo(tmp_path / "any name", bare=True)
    assert "programs obey" in refusal(repo, str(bare.path / "hooks"))
    os.symlink(repo.path / ".git/hooks", tmp_path / "link")
    assert "programs obey" in refusal(repo, str(tmp_path / "link"))


@pytest.mark.full
def test_restore_and_fork_write_no_unsigned_snapshot_among_hooks(tmp_path: Path) -> None:
    stranger = make_stranger(tmp_path)
    repo = stranger.repo
    repo.write("post-commit", "#!/bin/sh\ntouch ran\n", mode=0o755)
    planted = stranger.plant(repo.git("rev-parse", f"{capture(repo, 'with a program')}^{{tree}}"))
    other = make_repo(tmp_path / "other")
    for place in (repo.path / ".git/new/hooks", other.path / ".git/new"):
        for words in (
            ("envrestore", "--to", str(place), planted),
            ("envlog", "fork", "--allow-unsigned", str(place), planted),
        ):
            done = repo.run(*words)
            assert done.status == 3, (words, done.err)
            assert not place.exists()
    repo.run("envrestore", "--to", str(tmp_path / "elsewhere"), planted)
    assert (tmp_path / "elsewhere/post-commit").exists()
