"""A comparison of two snapshots keeps at most one directory of files and its parents in memory."""

from __future__ import annotations

from contextlib import closing

import pytest

from git_envhist import EnvHistory
from git_envhist.diff import snapshot_walker
from git_envhist.objects.object_readers import ObjectReader, Verify
from git_envhist.snapshots.reader import SnapshotReader
from tests.support.repository import Repo

DIRECTORIES = 40


def test_pairs_release_each_directory_of_files_after_it_is_compared(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(DIRECTORIES):
        repo.write(f"d/e{number}/file", b"1")
        repo.write(f"d/e{number}/other", b"2")
    history = EnvHistory.open(str(repo.path), environ=repo.env, workers="here", one_command=True)
    trees = [history.capture("first").snapshot]
    for number in range(DIRECTORIES):
        repo.write(f"d/e{number}/file", b"%d" % number)
    trees.append(history.capture("second").snapshot)
    before, after = (bytes.fromhex(one.tree) for one in trees if one is not None)

    halves: list[SnapshotReader] = []

    def kept(*arguments: object) -> SnapshotReader:
        halves.append(SnapshotReader(*arguments))  # type: ignore[arg-type]
        return halves[-1]

    monkeypatch.setattr(snapshot_walker, "SnapshotReader", kept)
    git = history.repository.git
    with closing(
        ObjectReader(git, history.repository.pack_dir, history.repository.object_format, verify=Verify.ID)
    ) as contents:
        compared = 0
        for _ in snapshot_walker.differing_directories(contents, before, after):
            compared += 1
            # In memory are parent directories, nested repositories, roots, shard lists and one directory of files.
            assert sum(len(half._trees) + len(half._texts) for half in halves) < DIRECTORIES // 2 + 4
        assert compared >= DIRECTORIES
        assert len(halves[0].shared) < DIRECTORIES // 2
