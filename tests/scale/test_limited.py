"""A capture or a restore that the kernel kills for memory loses nothing, and the next one works."""

from __future__ import annotations

import pytest

from tests.scale.limited import MIB, is_available, run_limited
from tests.support.oracle import git_fsck, kernel_listing
from tests.support.repository import Repo

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not is_available(), reason="needs root and the memory controller"),
]


@pytest.mark.parametrize("limit", [8, 14, 20, 26])
def test_program_that_is_killed_for_memory_loses_nothing(repo: Repo, limit: int) -> None:
    for number in range(300):
        repo.write(f"d/{number}", b"%d" % number * 50)
    first = repo.run("envlog", "capture", "--porcelain", check=True).out.strip()
    for number in range(0, 300, 2):
        repo.write(f"d/{number}", b"changed")
    before = kernel_listing(repo.path)
    for words in (("git-envlog", "capture"), ("git-envrestore", first)):
        done = run_limited(words, repo.path, repo.env, limit * MIB)
        assert done.status in (0, -9, 128), done.err
        assert sum(line.startswith("error: ") for line in done.err.splitlines()) == (done.status == 128)
        assert "unexpected failure" not in done.err
    if (repo.path / ".git/envhist/restore/journal").exists():
        repo.run("envrestore", "--abort", check=True)
    elif done.status == 0:
        repo.run("envrestore", "--undo", check=True)
    assert kernel_listing(repo.path) == before
    repo.run("envlog", "capture", check=True)
    repo.run("envrestore", first, check=True)
    assert repo.read("d/0") == b"0" * 50
    assert git_fsck(repo.path) == ""
