"""Staged files are on disk before the journal is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.model import Snapshot
from git_envhist.restore import execute
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.sync import FEW
from tests.support.repository import Repo

SYNCS = ("sync", "sync_file")
Moments = tuple[EnvHistory, Snapshot]


@pytest.fixture(params=[3, 2 * FEW], ids=["few", "many"])
def moments(request: pytest.FixtureRequest, repo: Repo) -> Moments:
    """Return a history, and a snapshot in which `request.param` files differ."""
    paths = [f"d/{number}" for number in range(request.param)]
    for path in paths:
        repo.write(path, b"1")
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    first = history.capture("one").snapshot
    assert first is not None
    for path in paths:
        repo.write(path, b"2")
    return history, first


def contents(repo: Repo) -> set[bytes]:
    return {path.read_bytes() for path in (repo.path / "d").iterdir()}


def journal_of(history: EnvHistory) -> Path:
    return Path(history.repository.state) / "restore/journal"


def test_staged_files_are_synced_before_the_journal(
    repo: Repo, moments: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, first = moments
    found: list[bool] = []

    def watched(name: str) -> None:
        really = getattr(DiskCalls, name)

        def sync(calls: DiskCalls, descriptor: int) -> None:
            really(calls, descriptor)
            found.append(journal_of(history).exists())

        monkeypatch.setattr(DiskCalls, name, sync)

    for name in SYNCS:
        watched(name)
    write = execute.write_journal
    synced: list[int] = []

    def written(*words: object) -> None:
        synced.append(len(found))
        write(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(execute, "write_journal", written)
    history.restore(first)
    assert contents(repo) == {b"1"}
    # The first sync comes before the journal exists, the last one before replaced files are removed.
    assert synced[0] > 0
    assert (found[0], found[-1]) == (False, True)


def test_failed_sync_changes_nothing(repo: Repo, moments: Moments, monkeypatch: pytest.MonkeyPatch) -> None:
    history, first = moments

    def refuse(calls: DiskCalls, descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for name in SYNCS:
        monkeypatch.setattr(DiskCalls, name, refuse)
    with pytest.raises(EnvhistError, match="cannot prepare the restore"):
        history.restore(first)
    monkeypatch.undo()
    assert contents(repo) == {b"2"}
    assert not journal_of(history).exists()
    history.restore(first)
    assert contents(repo) == {b"1"}
