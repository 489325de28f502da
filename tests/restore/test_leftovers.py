"""Files staged by a restore that was killed before it started are removed by the next command."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.faults import needs_strace, traced
from tests.end_to_end.captures import capture
from tests.support.oracle import listing
from tests.support.repository import Repo

KILLED_WHEN_STAGED = traced("syncfs,sync_file_range", "signal=KILL", "1")


@pytest.fixture
def elsewhere(repo: Repo) -> Iterator[Path]:
    """Return a directory on another file system than the repository's."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == repo.path.stat().st_dev:
        pytest.skip("no second writable file system")
    place = Path(tempfile.mkdtemp(dir=shared))
    yield place
    shutil.rmtree(place)


def staged(*places: Path) -> list[Path]:
    return [found for place in places for found in place.glob("**/slots")]


@needs_strace
@pytest.mark.parametrize("command", [("envlog", "capture"), ("envrestore", "@")])
def test_staged_files_are_removed_by_the_next_command(repo: Repo, command: tuple[str, ...]) -> None:
    first = capture(repo, "first")
    repo.write("app.py", b"other")
    now = listing(repo.path, top=True)
    private = repo.path / ".git/envhist/restore"
    repo.run("envrestore", first, prefix=KILLED_WHEN_STAGED)
    assert staged(private)
    (private / "journal.new").write_bytes(b"half a jour")
    (private / "phase").write_bytes(b"done\n")
    repo.run(*command, check=True)
    assert os.listdir(private) == []
    assert listing(repo.path, top=True) == now


def test_kept_files_stay_and_empty_directories_are_removed(repo: Repo) -> None:
    capture(repo, "first")
    repo.write(".git/envhist/restore/realm-61/kept/1-file", b"theirs")
    (repo.path / ".git/envhist/restore/realm-").mkdir()
    capture(repo, "second")
    assert os.listdir(repo.path / ".git/envhist/restore") == ["realm-61"]
    assert repo.read(".git/envhist/restore/realm-61/kept/1-file") == b"theirs"


@needs_strace
def test_staged_files_on_another_file_system_are_removed_without_changing_its_time(
    repo: Repo, elsewhere: Path
) -> None:
    repo.git("config", "envhist.root.other", str(elsewhere))
    (elsewhere / "below").mkdir()
    (elsewhere / "below/file").write_bytes(b"1")
    first, then = capture(repo, "first"), listing(elsewhere, top=True)
    before = os.stat(elsewhere / "below/file")
    (elsewhere / "below/file").write_bytes(b"2")
    now = listing(elsewhere, top=True)
    repo.run("envrestore", first, prefix=KILLED_WHEN_STAGED)
    assert staged(elsewhere)
    capture(repo, "next")
    assert listing(elsewhere, top=True) == now
    repo.run("envrestore", first, check=True)
    assert listing(elsewhere, top=True) == then
    assert before.st_ino != os.stat(elsewhere / "below/file").st_ino
