"""Working trees with a special layout: hard links into a store, a sparse checkout, a shallow clone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture
from tests.support.oracle import git_fsck, listing, sha256
from tests.support.repository import Repo
from tests.support.snapshot import read_back


@pytest.fixture
def store(repo: Repo, tmp_path: Path) -> Path:
    """Make a store outside the working tree, with two packages linked into the tree, one of them twice."""
    store = tmp_path / "store"
    store.mkdir()
    for name in ("left-pad", "right-pad"):
        (store / name).write_bytes(name.encode() * 20_000)
    places = {
        "node_modules/.pnpm/left-pad@1/node_modules/left-pad/index.js": "left-pad",
        "packages/a/node_modules/.pnpm/left-pad@1/node_modules/left-pad/index.js": "left-pad",
        ".venv/lib/python3/site-packages/right_pad.py": "right-pad",
    }
    for place, name in places.items():
        (repo.path / place).parent.mkdir(parents=True)
        os.link(store / name, repo.path / place)
    os.symlink(".pnpm/left-pad@1/node_modules/left-pad", repo.path / "node_modules/left-pad")
    return store


def test_files_linked_into_a_store_are_stored_once_and_listed_as_one_file(repo: Repo, store: Path) -> None:
    before = listing(store)
    commit = capture(repo)
    assert_holds(repo, commit)
    found = read_back(repo, commit).listing
    first, second = sorted(path for path in found if path.endswith(b"index.js"))
    assert found[first].linked == (second,)
    assert found[second].linked == (first,)
    assert found[b".venv/lib/python3/site-packages/right_pad.py"].linked == ()
    ids = repo.git("ls-tree", "-r", commit, "--", first, second).split("\n")
    assert len({line.split()[2] for line in ids}) == 1
    assert listing(store) == before


def test_change_through_the_store_is_captured_under_every_name(repo: Repo, store: Path) -> None:
    capture(repo)
    with open(store / "left-pad", "r+b") as file:
        file.write(b"LEFT")
    commit = capture(repo)
    assert_holds(repo, commit)
    found = read_back(repo, commit).listing
    changed = {entry.sha256 for path, entry in found.items() if path.endswith(b"index.js")}
    assert changed == {sha256(store / "left-pad")}


def test_sparse_checkout_is_captured_without_reporting_deleted_files(repo: Repo) -> None:
    for name in ("wanted/a", "elsewhere/b", "elsewhere/deep/c"):
        repo.write(name, name.encode())
    repo.commit()
    repo.git("sparse-checkout", "set", "--cone", "wanted")
    repo.git("update-index", "--skip-worktree", "app.py")
    (repo.path / "app.py").unlink()
    assert not (repo.path / "elsewhere").exists()
    commit = capture(repo)
    assert_holds(repo, commit)
    shown = repo.run("envlog", "show", "--json", commit, check=True).out
    assert '"elsewhere' not in shown
    assert '"app.py"' not in shown
    repo.git("sparse-checkout", "disable")
    assert_holds(repo, capture(repo))


@pytest.mark.parametrize("how", [("--depth=1",), ("--filter=blob:none",), ("--no-checkout",), ("--shared",)])
def test_snapshots_of_a_clone_are_readable_without_the_original(
    repo: Repo, tmp_path: Path, how: tuple[str, ...]
) -> None:
    for number in range(3):
        repo.write("file", b"%d" % number)
        repo.commit(f"{number}")
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "clone", repo.env)
    origin = str(repo.path) if how == ("--shared",) else repo.path.as_uri()
    repo.git("clone", "-q", *how, origin, str(clone.path))
    clone.write("own", b"1")
    first = capture(clone)
    clone.write("own", b"2")
    second = capture(clone)
    wanted = listing(clone.path, top=True)
    # Remove the original repository.
    repo.path.rename(tmp_path / "gone")
    assert_holds(clone, second, wanted)
    assert clone.git("show", f"{first}:own") == "1"
    if how == ("--depth=1",):
        assert git_fsck(clone.path) == ""
