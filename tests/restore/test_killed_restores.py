"""A program killed during a restore: the next command reports it; --continue or --abort give a complete state."""

from __future__ import annotations

import pytest

from tests.crash.faults import CALLS, needs_strace, traced
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.repository import Repo
from tests.support.trees import File, build

LEFT = 128
POINTS = {"rename": (6, 9, 12, 15), "write": (60, 80), "mode": (8, 14), "unlink": (3, 9), "sync": (9, 12, 14)}


def state(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


@pytest.fixture
def moments(repo: Repo) -> tuple[str, Listing, Listing]:
    """Return a snapshot, its files, and the files now."""
    build({b"d%d/f%d" % (n % 3, n): File(b"first %d" % n) for n in range(9)}, repo.path)
    repo.write("goes/away", b"later")
    first = repo.run("envlog", "capture", "--porcelain", "first", check=True).out.strip()
    then = state(repo)
    build({b"d%d/f%d" % (n % 3, n): File(b"second %d" % n) for n in range(6)}, repo.path)
    (repo.path / "goes/away").unlink()
    (repo.path / "goes").rmdir()
    repo.write("came/in", b"between")
    return first, then, state(repo)


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("call", POINTS)
def test_killed_restore_is_continued_or_aborted_by_a_command(
    repo: Repo, moments: tuple[str, Listing, Listing], call: str
) -> None:
    first, then, now = moments
    assert call in CALLS
    for turn, when in enumerate(POINTS[call]):
        repo.run("envrestore", first, prefix=traced(call, "signal=KILL", str(when)))
        ends, expected = (("--continue", then), ("--abort", now))[turn % 2]
        if repo.run("envlog", "capture", "--if-changed", "probe").status == LEFT:
            # Killed again during recovery.
            repo.run("envrestore", ends, prefix=traced("rename", "signal=KILL", "2"))
            ended = repo.run("envrestore", ends)
            assert ended.status in (0, 3), ended.err  # 3: it was complete already
            assert state(repo) == expected, (call, when)
        assert state(repo) in (then, now), (call, when)
        if state(repo) == then:
            repo.run("envlog", "undo", check=True)
        assert state(repo) == now, (call, when)
    assert git_fsck(repo.path) == ""


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize(("fault", "status"), [("signal=INT", 130), ("signal=TERM", 143)])
def test_interrupted_restore_prints_how_to_continue(
    repo: Repo, moments: tuple[str, Listing, Listing], fault: str, status: int
) -> None:
    first, then, now = moments
    # The third rename is the first exchange: the journal has been written.
    stopped = repo.run("envrestore", first, prefix=traced("renameat2", fault, "3"))
    assert stopped.status == status, stopped.err
    assert "Traceback" not in stopped.err
    if repo.run("envlog", "capture", "--if-changed", "probe").status == LEFT:
        assert "--continue" in stopped.err
        assert "--abort" in stopped.err
        repo.run("envrestore", "--abort", check=True)
        assert state(repo) == now
    else:
        assert state(repo) == then


@needs_strace
@pytest.mark.full
def test_path_that_cannot_be_changed_is_the_only_one_skipped(
    repo: Repo, moments: tuple[str, Listing, Listing]
) -> None:
    first, then, _ = moments
    done = repo.run("envrestore", first, prefix=traced("renameat2", "error=EIO", "3"))
    assert done.status == 5
    assert done.err.startswith("warning: not changed: ")
    repo.run("envrestore", first, check=True)
    assert state(repo) == then
