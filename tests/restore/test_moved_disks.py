"""Recovery after a mount with other device numbers, and in a copy of everything."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from git_envhist.restore.disk_entry import DiskEntry
from git_envhist.restore.journal import RestoreJournal, read_journal, write_journal
from tests.crash.faults import needs_strace, traced
from tests.crash.restorecut import left_behind, prepare
from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

ENDS = {"--continue": 0, "--abort": 1}


@pytest.fixture
def killed_restore(repo: Repo) -> tuple[Listing, Listing]:
    """Return the target and the previous files of a killed restore."""
    (first, then), (_, now) = prepare(repo).items()
    # The first six renames belong to packs and the journal.
    repo.run("envrestore", first, prefix=traced("renameat2", "signal=KILL", "8"))
    assert listing(repo.path, top=True) not in (then, now)
    return then, now


def change_device_numbers(repo: Repo) -> None:
    """Change the device numbers in the journal, as another mount would."""
    private = str(repo.path / ".git/envhist/restore")
    journal = read_journal(private)
    assert journal is not None
    write_journal(private, _renumbered(journal))


def _renumbered(journal: RestoreJournal) -> RestoreJournal:
    staged = [replace(one, new=_other(one.new), replaced=_other(one.replaced)) for one in journal.staged]
    spots = tuple(spot._replace(device=spot.device + 1) for spot in journal.locations)
    return replace(journal, staged=tuple(staged), locations=spots)


def _other(seen: DiskEntry | None) -> DiskEntry | None:
    return None if seen is None else seen._replace(device=seen.device + 1)


@needs_strace
@pytest.mark.parametrize("end", ENDS)
def test_restore_is_recovered_when_the_device_number_changed(
    repo: Repo, killed_restore: tuple[Listing, Listing], end: str
) -> None:
    change_device_numbers(repo)
    done = repo.run("envrestore", end)
    assert (done.status, done.err) == (0, "")
    assert listing(repo.path, top=True) == killed_restore[ENDS[end]]
    assert left_behind(repo) == []


@needs_strace
@pytest.mark.parametrize("end", ENDS)
def test_copy_of_an_interrupted_restore_is_recovered_from_snapshots(
    repo: Repo, killed_restore: tuple[Listing, Listing], tmp_path: Path, end: str
) -> None:
    place = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(repo.path), str(place)], check=True)
    copy = Repo(place, repo.env)
    left = listing(repo.path, top=True)
    # Killed again during recovery.
    copy.run("envrestore", end, prefix=traced("renameat2", "signal=KILL", "5"))
    assert copy.run("envlog", "capture").status == 128
    ended = copy.run("envrestore", end)
    assert ended.status in (0, 5), ended.err
    assert listing(place, top=True) == killed_restore[ENDS[end]]
    assert list(place.glob(".git/envhist/restore/realm-*/kept/*-slots"))
    assert copy.run("envrestore", end).status == 3
    assert listing(repo.path, top=True) == left
    assert os.path.exists(repo.path / ".git/envhist/restore/journal")
