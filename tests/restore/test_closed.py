"""Directories that are closed to their owner come, too, when an ordinary user writes a moment where nothing was."""

from __future__ import annotations

import pytest

from tests.support.oracle import listing, tree_differences
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo


@pytest.mark.parametrize("words", [("envrestore", "--to", "../made", "@"), ("envlog", "fork", "../made")])
def test_what_its_owner_may_not_write_to_is_written_elsewhere(repo: Repo, words: tuple[str, ...]) -> None:
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
