"""Additional roots: restored and undone with the working tree, compared by find."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.support.oracle import Listing, listing
from tests.support.repository import Repo


@pytest.fixture
def beside(repo: Repo, tmp_path: Path) -> Path:
    place = tmp_path / "beside"
    place.mkdir()
    repo.git("config", "envhist.root.ext", str(place))
    return place


def both(repo: Repo, beside: Path) -> tuple[Listing, Listing]:
    return listing(repo.path, top=True), listing(beside, top=True)


def change(top: Path) -> None:
    """Change every kind of entry, including secrets with several names."""
    (top / "conf.d/site").write_text("listen 8080")
    (top / "gone/deep/file").unlink()
    (top / "gone/deep").rmdir()
    (top / "conf.d/.env").write_text("TOKEN=" + os.urandom(8).hex())
    (top / "conf.d/twin.env").unlink()
    (top / "kind").unlink()
    (top / "kind").mkdir()
    (top / "kind/file").write_text("now a directory")
    (top / "came/late").mkdir(parents=True)
    (top / "came/late/.env").write_text("NEW=1")
    os.chmod(top / "run", 0o755)


@pytest.fixture
def changed(repo: Repo, beside: Path) -> tuple[str, tuple[Listing, Listing]]:
    (beside / "conf.d").mkdir()
    (beside / "conf.d/site").write_text("listen 80")
    (beside / "conf.d/.env").write_text("TOKEN=12345678")
    os.link(beside / "conf.d/.env", beside / "conf.d/twin.env")
    (beside / "gone/deep").mkdir(parents=True)
    (beside / "gone/deep/file").write_text("x")
    (beside / "kind").symlink_to("conf.d")
    (beside / "run").write_text("#!/bin/sh")
    repo.write(".env", "OWN=1")
    first, then = capture(repo), both(repo, beside)
    change(beside)
    return first, then


def test_additional_root_is_restored_and_undone_with_the_working_tree(
    repo: Repo, beside: Path, changed: tuple[str, tuple[Listing, Listing]]
) -> None:
    first, then = changed
    now = both(repo, beside)
    repo.run("envrestore", first, check=True)
    assert both(repo, beside) == then
    repo.run("envrestore", "--undo", check=True)
    assert both(repo, beside) == now


def test_secret_of_an_additional_root_is_restored(
    repo: Repo, beside: Path, changed: tuple[str, tuple[Listing, Listing]]
) -> None:
    first, (_, then) = changed
    repo.run("envrestore", first, "--", "ext://conf.d", check=True)
    found = listing(beside)
    assert {path: found[path] for path in found if path.startswith(b"conf.d/")} == {
        path: then[path] for path in then if path.startswith(b"conf.d/")
    }
    assert b"came/late/.env" in found


@pytest.mark.parametrize("spec", ["ext://", "ext://*", "ext://conf.d/site"])
def test_pathspec_selects_paths_of_an_additional_root(
    repo: Repo, beside: Path, changed: tuple[str, tuple[Listing, Listing]], spec: str
) -> None:
    first, (_, then) = changed
    repo.write("own", "new")
    repo.run("envrestore", first, "--", spec, check=True)
    assert (beside / "conf.d/site").read_text() == "listen 80"
    assert repo.read("own") == b"new"
    if spec.endswith("/"):
        assert listing(beside, top=True) == then


def test_first_capture_prints_the_name_of_an_additional_root(repo: Repo, beside: Path) -> None:
    (beside / "file").write_text("x" * 5000)
    printed = repo.run("envlog", "capture", check=True).out
    assert "  ext://\n" in printed
    assert "\\x00" not in printed
