"""Directories without write permission are restored into a new directory by an ordinary user."""

from __future__ import annotations

import pytest

from tests.support.oracle import listing, tree_differences
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo


@pytest.mark.parametrize("words", [("envrestore", "--to", "../made", "@"), ("envlog", "fork", "../made")])
def test_read_only_directories_are_written_to_another_directory(repo: Repo, words: tuple[str, ...]) -> None:
    repo.write("readonly/below/file", "1").parent.chmod(0o555)
    (repo.path / "closed").mkdir(mode=0)
    (repo.path / "readonly").chmod(0o555)
    user = as_ordinary_user()
    repo.run("envlog", "capture", "start", check=True, prefix=user)
    repo.run(*words, check=True, prefix=user)
    made = repo.path.parent / "made"
    assert tree_differences(repo.path, made, without=("/.git", "/closed")) == ()
    assert listing(made)[b"closed"] == listing(repo.path)[b"closed"]
    for path in ("readonly/below", "readonly", "closed"):
        for top in (repo.path, made):
            (top / path).chmod(0o755)
