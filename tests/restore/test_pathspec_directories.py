"""A restore of chosen paths also restores the metadata of directories whose entries did not change."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

PLACES = {
    "dir": ("dir", "dir/", "di*", ":(top)dir", ":(glob)d?r", "."),
    "dir/inner": ("dir/inner", "dir", "dir/*", ":(glob)**/inner"),
    "empty": ("empty", "empty/", "."),
    ".": (".", "/", ":!other"),
}
"""The pathspecs that select each directory."""


def change_mode(path: Path) -> None:
    path.chmod(0o711)


def change_group(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change the group of files to any group")
    os.chown(path, -1, 1234)


def set_time(path: Path) -> None:
    os.utime(path, ns=(0, 1_000_000_000_123_456_789))


def set_attribute(path: Path) -> None:
    try:
        os.setxattr(path, "user.note", b"later")
    except OSError:
        pytest.skip("the file system has no extended attributes")


CHANGES = (change_mode, change_group, set_time, set_attribute)


@pytest.fixture
def first(repo: Repo) -> str:
    repo.write("dir/inner/file", b"1")
    repo.write("other/file", b"1")
    (repo.path / "empty").mkdir()
    return repo.run("envlog", "capture", "--porcelain", "one", check=True).out.strip()


def now(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


def here(repo: Repo, pathspec: str) -> str:
    return str(repo.path) if pathspec == "/" else pathspec


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("directory", "pathspec"), [(name, spec) for name, specs in PLACES.items() for spec in specs]
)
def test_chosen_directory_is_restored_when_no_entry_in_it_changed(
    repo: Repo, first: str, change: Callable[[Path], None], directory: str, pathspec: str
) -> None:
    before = now(repo)
    change(repo.path / directory)
    assert now(repo) != before
    done = repo.run("envrestore", first, "--", here(repo, pathspec), check=True)
    assert "nothing to restore" not in done.out
    assert now(repo) == before


@pytest.mark.parametrize("pathspec", ["dir/inner", "dir/*", "other", "*.txt", ":(glob)dir/**/file", "app.py"])
def test_directory_that_is_not_chosen_is_unchanged(repo: Repo, first: str, pathspec: str) -> None:
    repo.write("new.txt", b"1")
    repo.run("envlog", "capture", "two", check=True)
    for directory in ("dir", "."):
        change_mode(repo.path / directory)
    repo.run("envrestore", first, "--", pathspec, check=pathspec != "*.txt")
    assert now(repo)[b"dir"].mode == 0o711


@pytest.mark.parametrize("words", [("--only=files",), ("--undo", "--", "dir")])
def test_directory_is_restored_by_class_and_by_undo(repo: Repo, first: str, words: tuple[str, ...]) -> None:
    before = now(repo)
    change_mode(repo.path / "dir")
    target = [] if "--undo" in words else [first]
    repo.run("envrestore", *words[:1], *target, *words[1:], check=True)
    assert now(repo) == before


@pytest.mark.parametrize("pathspec", ["dir", "dir/inner", ".", "empty", "empty/", "pipe"])
def test_unchanged_chosen_path_is_reported_as_nothing_to_restore(
    repo: Repo, first: str, pathspec: str
) -> None:
    os.mkfifo(repo.path / "pipe")
    first = repo.run("envlog", "capture", "--porcelain", "two", check=True).out.strip()
    done = repo.run("envrestore", first, "--", pathspec, check=True)
    assert "nothing to restore" in done.out


def test_path_that_no_snapshot_has_is_refused(repo: Repo, first: str) -> None:
    for pathspec in ("nothing", "dir/nothing", "more://dir"):
        done = repo.run("envrestore", first, "--", pathspec)
        assert (done.status, "nothing matches" in done.err) == (4, True)


def test_directory_of_an_additional_root_is_restored_when_no_entry_in_it_changed(
    repo: Repo, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "dir").mkdir(parents=True)
    (root / "dir/file").write_bytes(b"1")
    repo.git("config", "envhist.root.more", str(root))
    first = repo.run("envlog", "capture", "--porcelain", "one", check=True).out.strip()
    before = listing(root, top=True)
    for directory, pathspec in (("dir", "more://dir"), (".", "more://"), ("dir", ".")):
        change_mode(root / directory)
        repo.run("envrestore", first, "--", pathspec, check=True)
        assert listing(root, top=True) == before
    done = repo.run("envrestore", first, "--", "more://dir", check=True)
    assert "nothing to restore" in done.out


def test_file_is_not_written_when_only_a_path_below_it_is_chosen(repo: Repo) -> None:
    repo.write("place", b"a file")
    first = repo.run("envlog", "capture", "--porcelain", check=True).out.strip()
    (repo.path / "place").unlink()
    repo.write("place/deep/file", b"1")
    repo.run("envrestore", first, "--", "place/deep/file", check=True)
    assert not (repo.path / "place").exists()
    repo.run("envrestore", first, "--", "place", check=True)
    assert repo.read("place") == b"a file"
