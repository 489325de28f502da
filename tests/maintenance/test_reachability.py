"""Reachability by `git rev-list`: an incomplete list is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from git_envhist.errors import GitFailed
from git_envhist.git.process import Git
from git_envhist.maintenance import repack
from tests.support.repository import Repo


def test_incomplete_line_of_git_is_an_error_of_git(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    git = Git(str(Path(repo.path, ".git")), str(repo.path))
    assert repack.reachable_objects(git, lambda oid: True)
    monkeypatch.setattr(repack, "_lines", lambda *arguments: iter((b"0123 path", b"01x")))
    with pytest.raises(GitFailed, match="incomplete line"):
        repack.reachable_objects(git, lambda oid: True)
