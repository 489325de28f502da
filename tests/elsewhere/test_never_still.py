"""Directories that are never still: what stood still in them is captured, and the capture comes to an end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from git_envhist.worktree import content
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
    """Thousands of files come and go each second."""
    churn = subprocess.Popen([sys.executable, "-c", CHURN, str(place)], stdout=subprocess.PIPE)
    assert churn.stdout is not None
    churn.stdout.readline()
    try:
        yield
    finally:
        churn.kill()
        churn.communicate()


def test_thousands_of_files_that_come_and_go_hold_up_nothing_beside_them(repo: Repo) -> None:
    # Workers of their own: in one process, git would be started in a directory that is gone by then.
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


def test_a_link_that_is_turned_elsewhere_between_two_looks_is_one_or_the_other(
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
        patch.setattr(content.os, "readlink", readlink)
        taken = take(repo)
    assert turned
    assert taken.snapshot is not None
    # Its directory was looked at before; the link itself is as it is now, time and all.
    assert read_back(repo, taken.snapshot.commit).listing[b"link"] == listing(repo.path)[b"link"]
    assert_holds(repo, capture(repo))
