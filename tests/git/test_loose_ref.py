"""The value of a ref agrees with git, for every way in which git stores it."""

from __future__ import annotations

import pytest

from git_envhist.git.loose_ref import read_loose_ref
from git_envhist.git.repository import TIMELINE_REFS, Repository
from tests.support.repository import Repo

REF = TIMELINE_REFS + "here/app-123456"


def test_resolved_ref_agrees_with_git_when_loose_packed_or_deleted(repo: Repo) -> None:
    opened = Repository.open(str(repo.path))
    assert opened.resolve_ref(REF) is None
    for pack in (False, True):
        repo.write("app.py", b"%d" % pack)
        repo.git("commit", "-q", "-a", "-m", "more")
        repo.git("update-ref", REF, "HEAD")
        if pack:
            repo.git("pack-refs", "--all")
        assert (read_loose_ref(opened.common_dir, REF) is None) == pack
        assert opened.resolve_ref(REF) == repo.git("rev-parse", "HEAD").strip()


@pytest.mark.parametrize("text", [b"", b"ref: refs/heads/main\n", b"0123\n", b"g" * 40 + b"\n", b"a" * 40])
def test_unusual_ref_file_is_left_to_git(repo: Repo, text: bytes) -> None:
    path = repo.path / ".git" / REF
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    assert read_loose_ref(str(repo.path / ".git"), REF) is None
