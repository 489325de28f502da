"""A comparison of a series of snapshots agrees with comparing each one alone."""

from __future__ import annotations

import shutil

import pytest

from git_envhist.api import EnvHistory
from git_envhist.diff import compare_series as series
from git_envhist.diff.compare_series import commits_changing_paths
from git_envhist.diff.compare_snapshots import compare
from git_envhist.errors import GitFailed
from git_envhist.git.pathspecs import anchored
from git_envhist.model import Snapshot
from tests.support.repository import Repo

PATHSPECS = (
    *(
        [b"app.py"],
        [b"src"],
        [b"src/"],
        [b"*.py"],
        [b":(exclude)src"],
        [b"thing"],
        [b"thing/"],
        [b"*.log", b"app.py"],
    ),
    *([b"data/empty/"], [b":(glob)**/deep/*"], [b"nothing"], [b"."], [b"src/mode.sh"], [b".gitattributes"]),
)


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    """Make snapshots that differ in bytes, in the manifest only, in nothing, and in the kind of a path."""
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)

    def capture() -> None:
        history.capture("x")

    repo.write("src/mode.sh", b"echo", 0o644)
    repo.write("thing", b"a file")
    capture()
    repo.write("app.py", b"print('changed')\n")
    capture()
    capture()
    (repo.path / "src/mode.sh").chmod(0o600)
    capture()
    (repo.path / "data/empty").mkdir(parents=True)
    capture()
    (repo.path / "thing").unlink()
    repo.write("thing/deep/a.log", b"1")
    repo.write(".gitattributes", b"*.bin -text\n")
    capture()
    shutil.rmtree(repo.path / "thing")
    (repo.path / "thing").mkdir()
    capture()
    return history


def alone(history: EnvHistory, snapshot: Snapshot, specs: list[bytes]) -> bool:
    return bool(compare(history.repository.git, snapshot.parent, snapshot.commit, pathspecs=specs))


@pytest.mark.parametrize("at_once", [64, 2])
def test_series_agrees_with_single_comparisons(
    history: EnvHistory, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(series, "AT_ONCE", at_once)
    snapshots = history.log()
    steps = [(snapshot.commit, snapshot.parent) for snapshot in snapshots]
    counts = set()
    for typed in PATHSPECS:
        specs = [anchored(spec, b"", b"/nowhere") for spec in typed]
        expected = {snapshot.commit for snapshot in snapshots if alone(history, snapshot, specs)}
        assert commits_changing_paths(history.repository.git, steps, specs) == expected, typed
        counts.add(len(expected))
    # Without this, the comparison could be between two empty lists.
    assert {0, 1, 2, 3} <= counts


def test_snapshot_that_git_cannot_compare_raises(history: EnvHistory) -> None:
    newest, before, *_ = history.log()
    steps = [(newest.commit, before.commit), ("12" * (len(newest.commit) // 2), newest.commit)]
    with pytest.raises(GitFailed, match="did not report the changes of '1212"):
        commits_changing_paths(history.repository.git, steps, [b"app.py"])
