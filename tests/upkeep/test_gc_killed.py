"""A cleaning that is killed anywhere loses nothing, and the next one finishes what it began.

The suite tries each seventh step; `python -m tests.upkeep.test_gc_killed` tries all of them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.store.collecting import NOTHING_STAYS, collect
from git_envhist.store.repository import Repository
from git_envhist.upkeep.cleaning import sweep_killed
from tests.store.dying import dies
from tests.store.packing import noise
from tests.support.repository import Repo, make_repo

EVERY = 7


def model(place: Path) -> tuple[Repo, set[str]]:
    """A repository with moments, some of which nothing names, and objects of the user's in our packs alone."""
    repo = make_repo(place)
    history = EnvHistory.open(str(repo.path), workers="here")
    repo.write("users", "the user's, stored by a capture first\n" * 9)
    repo.write("gone", noise(30_000))
    history.capture("gone")
    for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/envhist", "refs/notes/envhist").split():
        repo.git("update-ref", "-d", ref)
    (repo.path / "gone").unlink()
    repo.git("add", "users")
    for number in range(3):
        repo.write("app.py", f"print({number})\n" * 60)
        history.capture(f"moment {number}")
    repo.git("multi-pack-index", "write")
    repo.git("commit-graph", "write", "--reachable")
    needed = repo.git("rev-list", "--objects", "--all", "--reflog", "--indexed-objects")
    return repo, {line.split()[0] for line in needed.splitlines()}


def deaths(place: Path, every: int) -> Iterator[int]:
    """Kill a cleaning at its first, then at later steps, until one comes to its end; judge after each."""
    repo, needed = model(place / "model")
    copy = place / "copy"
    for step in count(0, every):
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-a", str(repo.path), str(copy)], check=True)
        there = Repository.open(str(copy))
        if not dies(lambda there=there: collect(there, keep_since=NOTHING_STAYS), step):  # type: ignore[misc]
            return
        judge(Repo(copy, repo.env), there, needed)
        yield step


def judge(repo: Repo, there: Repository, needed: set[str]) -> None:
    # As whoever comes next has it: a capture, or a cleaning.
    sweep_killed(there)
    repo.git("fsck", "--full", "--strict", "--no-dangling")
    assert missing(repo, needed) == []
    collect(there, keep_since=NOTHING_STAYS)
    assert missing(repo, needed) == []
    repo.git("fsck", "--full", "--strict", "--no-dangling")
    stems = {path.stem for path in (repo.path / ".git/objects/pack").glob("*.keep")}
    left = {path.stem for path in (repo.path / ".git/objects/pack").iterdir() if path.suffix != ".idx"}
    assert len(stems) == 1
    assert left <= stems | {"multi-pack-index"}
    assert [path.name for path in (repo.path / ".git/envhist/staging").iterdir()] == ["turn"]


def missing(repo: Repo, needed: set[str]) -> list[str]:
    told = repo.git("cat-file", "--batch-check", input="".join(f"{oid}\n" for oid in sorted(needed)))
    return [line for line in told.splitlines() if line.endswith(" missing")]


def test_a_cleaning_killed_anywhere_loses_nothing(tmp_path: Path) -> None:
    assert sum(1 for _ in deaths(tmp_path, EVERY)) > 10


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gc-killed-") as place:
        print(f"killed at {sum(1 for _ in deaths(Path(place), 1))} steps, nothing lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
