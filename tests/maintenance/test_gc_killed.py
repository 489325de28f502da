"""A gc killed at any step loses nothing, and the next one completes it.

The suite tries a sample of the steps; `--full` and `python -m tests.maintenance.test_gc_killed` try all of them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.git.repository import Repository
from git_envhist.maintenance.gc import KEEP_NOTHING, collect_garbage, sweep_killed
from tests.objects.dying import NEVER, each_death
from tests.objects.packing import noise
from tests.support.repository import Repo, make_repo


def model(place: Path) -> tuple[Repo, set[str]]:
    """Create a repository with reachable and unreachable snapshots, and some user's objects that only git-envhist's
    packs contain."""
    repo = make_repo(place)
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
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


def deaths(place: Path, default: int) -> Iterator[int]:
    """Kill a gc before its steps in turn, judge after each kill, and yield the step."""
    repo, needed = model(place / "model")
    copy = place / "copy"

    def reset() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(repo.path, copy, symlinks=True)

    reset()
    for step in each_death(
        lambda: collect_garbage(Repository.open(str(copy)), keep_since=KEEP_NOTHING), reset, default
    ):
        judge(Repo(copy, repo.env), Repository.open(str(copy)), needed)
        yield step
        reset()


def judge(repo: Repo, there: Repository, needed: set[str]) -> None:
    # The state that the next capture or gc finds.
    sweep_killed(there)
    repo.git("fsck", "--full", "--strict", "--no-dangling")
    assert missing(repo, needed) == []
    collect_garbage(there, keep_since=KEEP_NOTHING)
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


def test_gc_killed_at_any_step_loses_no_object(tmp_path: Path) -> None:
    assert max(deaths(tmp_path, default=10)) > 70


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gc-killed-") as place:
        print(f"killed at {sum(1 for _ in deaths(Path(place), default=NEVER))} steps, nothing lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
