"""The byte budget: the largest files are skipped and reported; content that is stored already does not count."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from git_envhist.model import CaptureResult, MissingReason
from tests.capture.helpers import HOWS, forget_cache, snapshot, take
from tests.end_to_end.captures import assert_holds
from tests.support.oracle import git_fsck
from tests.support.repository import Repo
from tests.support.snapshot import read_back

MIB = 1 << 20


def fill(repo: Repo, **sizes: int) -> None:
    for name, size in sizes.items():
        repo.write(f"dir/{name}", os.urandom(size))


def held(repo: Repo, taken: CaptureResult) -> set[str]:
    assert taken.snapshot is not None
    found = read_back(repo, taken.snapshot.commit).listing
    return {path.decode().removeprefix("dir/") for path in found if path.startswith(b"dir/")}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", HOWS)
def test_largest_files_are_skipped_over_the_budget(repo: Repo, how: str, workers: int) -> None:
    repo.git("config", "envhist.budget", "4m")
    repo.git("config", "envhist.workers", str(workers))
    fill(repo, tiny=10, small=MIB // 2, middle=2 * MIB, large=3 * MIB, huge=12 * MIB)
    taken = take(repo, how)
    assert {(one.path, one.why) for one in taken.missing} == {
        (b"dir/large", MissingReason.BUDGET),
        (b"dir/huge", MissingReason.BUDGET),
    }
    assert held(repo, taken) == {"tiny", "small", "middle"}
    assert taken.snapshot is not None
    assert not taken.snapshot.complete
    assert taken.stored_bytes < 4 * MIB + 100_000
    assert git_fsck(repo.path) == ""


def test_skipped_file_is_captured_when_the_budget_grows(repo: Repo) -> None:
    repo.git("config", "envhist.budget", "3m")
    fill(repo, a=2 * MIB, b=2 * MIB + 1)
    assert [one.path for one in take(repo).missing] == [b"dir/b"]
    # The first file is stored, so the whole budget is left for the second.
    assert take(repo).missing == ()
    assert_holds(repo, snapshot(repo).commit)


@pytest.mark.parametrize("how", HOWS)
def test_stored_content_does_not_count_against_the_budget(repo: Repo, how: str) -> None:
    repo.git("config", "envhist.workers", "2")
    fill(repo, a=2 * MIB, b=9 * MIB, c=12 * MIB, d=13 * MIB)
    take(repo)
    repo.git("config", "envhist.budget", "1m")
    forget_cache(repo)
    # Mixed with stored content, so that both workers have something to read at the same time.
    new = {"n1": 3 * MIB, "n2": 10 * MIB, "n3": 11 * MIB, "n4": 12 * MIB + 1}
    fill(repo, **new)
    taken = take(repo, how)
    assert {one.path for one in taken.missing} == {b"dir/" + name.encode() for name in new}
    assert held(repo, taken) == {"a", "b", "c", "d"}


def test_budget_counts_compressed_bytes(repo: Repo) -> None:
    repo.git("config", "envhist.budget", "1m")
    repo.write("dir/zeros", bytes(30 * MIB))
    repo.write("dir/text", b"the same line\n" * 200_000)
    taken = take(repo)
    assert taken.missing == ()
    assert_holds(repo, snapshot(repo).commit)


def test_budget_counts_the_last_chunks_of_a_file(repo: Repo) -> None:
    """Chunks are cut from several megabytes at a time, so all chunks of such a file come at its end."""
    repo.git("config", "envhist.bigFile", "1m")
    repo.git("config", "envhist.budget", "4m")
    fill(repo, small=MIB, large=5 * MIB)
    taken = take(repo, "fork")
    assert [(one.path, one.why) for one in taken.missing] == [(b"dir/large", MissingReason.BUDGET)]
    assert held(repo, taken) == {"small"}
    assert taken.stored_bytes < 2 * MIB


@pytest.mark.parametrize("how", HOWS)
def test_staged_contents_use_the_rest_of_the_budget(repo: Repo, how: str) -> None:
    repo.git("config", "envhist.budget", "1m")
    repo.write("staged", os.urandom(MIB // 3))
    repo.git("add", "staged")
    repo.write("staged", b"another content")
    # The budget is too small for the workers to write a pack.
    fill(repo, **{f"small{number}": MIB // 20 for number in range(10)})
    taken = take(repo, how)
    assert (taken.missing, taken.warnings) == ((), ())
    assert taken.stored_bytes < MIB


def test_skipped_file_is_not_reported_as_removed(repo: Repo) -> None:
    fill(repo, grows=100)
    take(repo)
    repo.git("config", "envhist.budget", "1m")
    fill(repo, grows=2 * MIB)
    taken = take(repo)
    assert [one.path for one in taken.missing] == [b"dir/grows"]
    assert repo.git("show", f"{taken.snapshot.commit if taken.snapshot else ''}:.envhist/missing").startswith(
        "dir/grows"
    )


def test_dry_run_reports_and_writes_nothing(repo: Repo) -> None:
    fill(repo, a=100, b=200)
    repo.write("other/c", b"1")
    before = sorted(path for path in (repo.path / ".git").rglob("*") if path.is_file())
    taken = take(repo, dry_run=True)
    assert taken.snapshot is None
    assert (taken.new_files, taken.new_bytes) == (4, 301 + len(repo.read("app.py")))
    assert taken.directories[0] == (b"dir", 2, 300)
    after = sorted(path for path in (repo.path / ".git").rglob("*") if path.is_file())
    places = {path.relative_to(repo.path / ".git").parts[0] for path in set(after) - set(before)}
    assert places <= {"envhist"}
    assert not list(Path(repo.path, ".git/objects/pack").glob("*"))
