"""Large contents that only the index refers to: stored in chunks, within the budget, never whole in memory."""

from __future__ import annotations

import hashlib
import random
import re

import pytest

from git_envhist.capture import captured_tree
from git_envhist.model import CaptureResult
from tests.capture.helpers import take
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

MIB = 1 << 20


def stage(repo: Repo, name: str, data: bytes) -> str:
    """Store content only in the index; return its id."""
    repo.write(name, data)
    repo.git("add", "-f", name)
    repo.write(name, "something else")
    return repo.git("rev-parse", f":{name}")


def places(repo: Repo, taken: CaptureResult) -> dict[str, str]:
    """Return the stored staged contents: git's mode by name."""
    assert taken.snapshot is not None
    rows = repo.git("ls-tree", f"{taken.snapshot.commit}:.envhist/staged/content").splitlines()
    return {row.split("\t")[1]: row.split()[2] for row in rows}


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_large_staged_content_is_reassembled_by_plain_git(repo: Repo, packed: bool) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    data = random.Random(1).randbytes(5 * MIB) + bytes(MIB)
    large, small = stage(repo, "large", data), stage(repo, "small", b"just a few bytes")
    if packed:
        repo.git("repack", "-adq", "--keep-unreachable")
    taken = take(repo)
    kept = places(repo, taken)
    assert set(kept) == {f"0-{large}", f"0-{small}"}
    assert repo.git("cat-file", "blob", kept[f"0-{small}"]) == "just a few bytes"
    each = "while read -r _ _ blob _; do git cat-file blob $blob; done"
    script = f"git ls-tree -r {kept[f'0-{large}']} | {each} | sha256sum"
    assert repo.execute("sh", "-c", script).out.split()[0] == hashlib.sha256(data).hexdigest()
    assert git_fsck(repo.path) == ""
    sizes = re.findall(
        r"^\S+ blob \S+ +(\d+)", repo.git("ls-tree", "-r", "-l", kept[f"0-{large}"]), re.MULTILINE
    )
    assert max(map(int, sizes)) <= 256 << 10


def test_staged_content_over_the_budget_is_skipped_with_a_warning(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    repo.git("config", "envhist.budget", "2m")
    stage(repo, "large", random.Random(2).randbytes(3 * MIB))
    middle = stage(repo, "middle", random.Random(3).randbytes(MIB - 1))
    stage(repo, "more", random.Random(4).randbytes(MIB - 2))
    more = stage(repo, "tiny", b"there is room for this")
    taken = take(repo)
    assert [warning for warning in taken.warnings if "staged" in warning] == [
        "the staged content of 'large' is not captured: it is too large",
        "the staged content of 'more' is not captured: it is too large",
    ]
    assert set(places(repo, taken)) == {f"0-{middle}", f"0-{more}"}
    assert taken.snapshot is not None
    index = repo.git("show", f"{taken.snapshot.commit}:.envhist/staged/index")
    assert [line.split()[0] for line in index.splitlines()] == ["large", "middle", "more", "tiny"]
    assert taken.stored_bytes < 2 * MIB + 100_000
    assert git_fsck(repo.path) == ""


def test_secret_staged_content_is_skipped_when_too_large_to_seal(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("config", "envhist.bigFile", "1m")
    monkeypatch.setattr(captured_tree, "MAX_SEALED", 2 * MIB)
    fits = b"PASSWORD=correct-horse\n" * 60_000
    stage(repo, "a/.env", fits)
    stage(repo, "b/.env", fits * 2)
    taken = take(repo)
    assert [warning for warning in taken.warnings if "staged" in warning] == [
        "the staged content of 'b/.env' is not captured: it is too large"
    ]
    (sealed,) = places(repo, taken).values()
    assert b"correct-horse" not in repo.execute("git", "cat-file", "blob", sealed).out.encode(
        "utf-8", "replace"
    )
