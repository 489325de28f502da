"""Captures that are killed, run out of space, or run at the same time as gc and other captures lose no snapshot."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture, history, tip
from tests.support.needs import needs
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, Result
from tests.support.trees import File, build

needs_strace = needs("strace")


def fill(repo: Repo, stamp: str, number: int = 120) -> None:
    build({b"d%d/f%d" % (n % 7, n): File(f"{stamp} {n}".encode() * 50) for n in range(number)}, repo.path)


def with_fault(repo: Repo, call: str, fault: str, when: str, *words: str) -> Result:
    """Capture with a system call that kills or fails from its n-th time on, in each of the processes."""
    trace = (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:{fault}:when={when}",
    )
    return repo.run("envlog", "capture", "--porcelain", "after the fault", *words, prefix=trace)


def leftovers(repo: Repo) -> list[str]:
    """Return temporary files of packs and staging directories that no capture will remove."""
    git = repo.path / ".git"
    packs = [
        path.name
        for path in (git / "objects" / "pack").iterdir()
        if path.suffix not in (".pack", ".idx", ".keep")
    ]
    staging = git / "envhist" / "staging"
    # The lock file of captures is not removed.
    return packs + [path.name for path in (staging.iterdir() if staging.is_dir() else ()) if path.is_dir()]


CALLS = (
    "openat",
    "write",
    "rename,renameat,renameat2,link,linkat",
    "fsync,fdatasync",
    "mkdir,mkdirat",
    "unlink,unlinkat",
)


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("call", CALLS)
def test_capture_killed_at_any_call_leaves_the_old_or_the_new_tip(repo: Repo, call: str) -> None:
    fill(repo, "before")
    old = capture(repo, "before")
    for step, when in enumerate((1, 2, 3, 5, 8, 13, 21, 60)):
        fill(repo, f"step {step}", number=30)
        known = history(repo)
        with_fault(repo, call, "signal=KILL", str(when))
        assert history(repo)[-len(known) :] == known
        assert git_fsck(repo.path) == ""
        newest = tip(repo)
        assert newest is not None
        if newest not in known:
            assert_holds(repo, newest)
    assert_holds(repo, capture(repo, "after all of that"))
    assert leftovers(repo) == []
    assert history(repo)[-1] == old


@pytest.mark.full
def test_capture_killed_at_any_time_leaves_the_old_or_the_new_tip(repo: Repo) -> None:
    fill(repo, "before")
    capture(repo, "before")
    for step in range(12):
        fill(repo, f"step {step}")
        known = history(repo)
        running = subprocess.Popen(
            ["git-envlog", "capture", "-m", "killed"], cwd=repo.path, env=repo.env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(0.02 + 0.03 * step)
        running.kill()
        running.wait()
        assert history(repo)[-len(known) :] == known
        assert git_fsck(repo.path) == ""
    assert_holds(repo, capture(repo, "after all of that"))
    # Workers notice the end of their parent; the next capture removes their files.
    time.sleep(0.5)
    capture(repo, "sweeps")
    assert leftovers(repo) == []


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EIO"])
@pytest.mark.parametrize("call", ["write", "fsync,fdatasync", "rename,renameat,renameat2,link,linkat"])
def test_capture_on_a_failing_disk_publishes_nothing_and_prints_one_line(
    repo: Repo, call: str, error: str
) -> None:
    fill(repo, "before")
    old = capture(repo, "before")
    for step, when in enumerate(("1+", "2+", "3+", "5+", "9+", "17+")):
        fill(repo, f"{error} {step}", number=20)
        known = history(repo)
        done = with_fault(repo, call, f"error={error}", when)
        assert "Traceback" not in done.err
        assert git_fsck(repo.path) == ""
        newest = tip(repo)
        assert newest is not None
        if newest in known:
            # A failing write can also hit the program's own output, which is then empty.
            assert done.status != 0 or done.stdout == b""
        else:
            assert_holds(repo, newest)
    assert_holds(repo, capture(repo, "room again"))
    assert leftovers(repo) == []
    assert history(repo)[-1] == old


@pytest.mark.full
def test_gc_in_a_loop_removes_no_object_of_a_capture(repo: Repo) -> None:
    script = (
        "while [ ! -e ../stop ]; do git gc -q --prune=now; git repack -q -a -d; git prune --expire=now; done"
    )
    loop = subprocess.Popen(["sh", "-c", script], cwd=repo.path, env=repo.env, stderr=subprocess.DEVNULL)
    try:
        taken = []
        for step in range(15):
            # The same bytes are also loose objects that gc may remove at any time; a capture must not rely on these.
            repo.write("churn", f"{step}".encode() * 100)
            repo.git("hash-object", "-w", "churn", check=False)
            taken.append(capture(repo, f"step {step}"))
    finally:
        (repo.path.parent / "stop").touch()
        loop.wait()
    repo.git("gc", "-q", "--prune=now")
    assert git_fsck(repo.path) == ""
    for step, snapshot in enumerate(taken):
        assert repo.git("show", f"{snapshot}:churn") == f"{step}" * 100


@pytest.mark.full
def test_concurrent_captures_are_all_on_one_chain(repo: Repo) -> None:
    capture(repo, "first")
    words = ["git-envlog", "capture", "--porcelain", "-m", "racing"]
    running = [
        subprocess.Popen(words, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(5)
    ]
    ended = [(process.communicate()[0].decode().strip(), process.returncode) for process in running]
    assert [status for _, status in ended] == [0] * 5
    assert {snapshot for snapshot, _ in ended} == set(history(repo)[:5])
    assert git_fsck(repo.path) == ""


def test_unknown_file_among_the_packs_is_never_removed(repo: Repo) -> None:
    foreign = [
        repo.path / ".git/objects/pack" / name for name in ("tmp_pack_AbCdEf", "tmp_idx_zz", "pack-x.keep")
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"somebody else's")
    capture(repo)
    capture(repo)
    assert [path.read_bytes() for path in foreign] == [b"somebody else's"] * 3


def test_snapshot_does_not_use_objects_of_an_alternate(repo: Repo, tmp_path: Path) -> None:
    repo.write("data", b"shared bytes" * 100)
    repo.commit()
    borrower = Repo(tmp_path / "borrower", repo.env)
    repo.git("clone", "-q", "--shared", str(repo.path), str(borrower.path))
    snapshot = capture(borrower)
    (borrower.path / ".git/objects/info/alternates").unlink()
    assert_holds(borrower, snapshot)
