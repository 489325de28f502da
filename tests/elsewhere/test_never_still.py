"""Directories that change all the time: their unchanged files are captured, and the capture ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from git_envhist.worktree import store_content
from tests.capture.helpers import take
from tests.end_to_end.captures import assert_holds, capture
from tests.support.oracle import git_fsck, listing
from tests.support.repository import Repo
from tests.support.snapshot import read_back
from tests.support.trees import File, build

CHURN = """
import itertools, os, sys
os.chdir(sys.argv[1])
print("started", flush=True)
for number in itertools.count():
    name = f"churn/d{number % 20}/{number % 400}"
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w") as file:
        file.write(str(number))
    if number % 3 == 0:
        os.rename(name, name + "x")
    if number % 7 == 0:
        for entry in os.listdir(os.path.dirname(name)):
            os.unlink(os.path.dirname(name) + "/" + entry)
        os.rmdir(os.path.dirname(name))
"""


@contextmanager
def churning(place: Path) -> Iterator[None]:
    """Create and remove thousands of files per second during the block."""
    churn = subprocess.Popen([sys.executable, "-c", CHURN, str(place)], stdout=subprocess.PIPE)
    assert churn.stdout is not None
    churn.stdout.readline()
    try:
        yield
    finally:
        churn.kill()
        churn.communicate()


def test_files_created_and_removed_all_the_time_do_not_affect_other_files(repo: Repo) -> None:
    # Use worker processes: without them, git would be started in a directory that may be removed by then.
    repo.env["GIT_ENVHIST_WORKERS"] = "fork"
    still = {b"still/d%d/f%d" % (number % 5, number): File(b"%d" % number) for number in range(50)}
    build(still, repo.path)
    with churning(repo.path):
        taken = [capture(repo) for _ in range(3)]
    for commit in taken:
        found = read_back(repo, commit).listing
        assert set(still) <= set(found)
        assert {path for path in found if path.startswith(b"still/") and found[path].kind == "f"} == set(
            still
        )
    assert git_fsck(repo.path) == ""
    assert_holds(repo, capture(repo))


def test_link_changed_during_a_capture_is_captured_with_its_new_target(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = repo.path / "link"
    link.symlink_to("first")
    real, turned = os.readlink, []

    def readlink(name: bytes) -> bytes:
        target = real(name)
        if name == b"link" and not turned:
            turned.append(True)
            link.unlink()
            link.symlink_to("the second, which is longer")
        return target

    with monkeypatch.context() as patch:
        patch.setattr(store_content.os, "readlink", readlink)
        taken = take(repo)
    assert turned
    assert taken.snapshot is not None
    # The link was changed after its directory was scanned, and is captured with its present target and time.
    assert read_back(repo, taken.snapshot.commit).listing[b"link"] == listing(repo.path)[b"link"]
    assert_holds(repo, capture(repo))
