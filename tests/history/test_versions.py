"""Ids of paths in a row of trees, compared with git's own listing."""

from __future__ import annotations

import random

import pytest

from git_envhist.errors import Damaged
from git_envhist.git.process import Git
from git_envhist.history.versions import ABSENT, VersionReader
from git_envhist.lazy import replace
from git_envhist.model import EnvPath, Snapshot
from tests.history.snapshots import snapshot
from tests.support.repository import Repo

NAMES = ("f", "af", "f.txt", "fa", "d", "0 f", "100644 f")
"""Names that contain each other, and what precedes a name in a tree object."""


def trees(repo: Repo, count: int) -> list[Snapshot]:
    """Return snapshots of trees in which names come, go and change their kind."""
    chosen = random.Random(7)
    blobs = [repo.git("hash-object", "-w", "--stdin", input=text) for text in ("", "one", "two")]
    empty = repo.git("mktree", input=f"100644 blob {blobs[1]}\tf\n")
    made = []
    for _ in range(count):
        rows = [
            f"{chosen.choice(('100644', '100755'))} blob {chosen.choice(blobs)}\t{name}"
            if chosen.random() < 0.7
            else f"040000 tree {empty}\t{name}"
            for name in NAMES
            if chosen.random() < 0.8
        ]
        inner = repo.git("mktree", input="\n".join(rows) + "\n" * bool(rows))
        rows.append(f"040000 tree {inner}\tbelow")
        tree = repo.git("mktree", input="\n".join(rows) + "\n")
        made.append(replace(snapshot(tree), tree=tree))
    return made


def listed(repo: Repo, tree: str, path: str) -> tuple[int, bytes]:
    """Return mode and id of a path as git lists it."""
    row = repo.git("ls-tree", tree, path).split()
    return (int(row[0], 8), bytes.fromhex(row[2])) if row else ABSENT


def test_ids_of_paths_are_those_that_git_lists(repo: Repo) -> None:
    made = trees(repo, 12)
    with VersionReader(Git(str(repo.path / ".git"), str(repo.path)), made[0].tree) as reader:
        for path in (*NAMES, "below/f", "below/af", "f/f", "d/f", "missing", "missing/f"):
            found = [reader.path_id(one, EnvPath(path.encode())) for one in made]
            assert found == [listed(repo, one.tree, path) for one in made], path


@pytest.mark.parametrize("hostile", ["x 100644 b", "100644 b", "x100644 b", "0 100644 b"])
def test_entry_inside_of_the_name_of_another_is_not_found(repo: Repo, hostile: str) -> None:
    blob = repo.git("hash-object", "-w", "--stdin", input="one")
    rows = {name: f"100644 blob {blob}\t{name}\n" for name in ("a", "b", hostile)}
    chosen = [("a", "b"), ("a", hostile), ("a", "b", hostile), (hostile,), ("b",)]
    found = [repo.git("mktree", input="".join(rows[name] for name in names)) for names in chosen]
    made = [replace(snapshot(tree), tree=tree) for tree in found]
    with VersionReader(Git(str(repo.path / ".git"), str(repo.path)), made[0].tree) as reader:
        exists = [reader.path_id(one, EnvPath(b"b")) != ABSENT for one in made]
    assert exists == ["b" in names for names in chosen]


def test_missing_tree_is_reported(repo: Repo) -> None:
    gone = replace(snapshot("gone"), tree="1" * 40)
    git = Git(str(repo.path / ".git"), str(repo.path))
    with VersionReader(git, gone.tree) as reader, pytest.raises(Damaged, match="is missing"):
        reader.path_id(gone, EnvPath(b"f"))
