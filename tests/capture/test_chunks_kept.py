"""Every snapshot with a big file refers to the file's chunks, also if only a neighbouring file changed."""

from __future__ import annotations

import os

from git_envhist.api import EnvHistory
from tests.support.repository import Repo


def test_big_file_keeps_its_chunks_when_its_neighbour_changes(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "100k")
    first, second = os.urandom(300_000), os.urandom(400_000)
    repo.write("data/first", first)
    repo.write("data/second", second)
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    history.capture("both")
    repo.write("data/second", second + b"more")
    repo.write("data/small", b"new")
    snapshot = history.capture("one changed").snapshot
    assert snapshot is not None

    held = repo.git("rev-list", "--objects", "--no-object-names", snapshot.tree).split()
    for name, data in (("first", first), ("second", second + b"more")):
        pointer = repo.git("show", f"{snapshot.id}:data/{name}")
        tree = pointer.split("tree ")[1].strip()
        assert tree in held
        pieces = repo.git("ls-tree", "-r", "--format=%(objectname)", tree).split()
        assert set(pieces) <= set(held)
        found = b"".join(repo.run_git("cat-file", "blob", piece).stdout for piece in pieces)
        assert found == data
