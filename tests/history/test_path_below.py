"""Paths typed by a user, from the top of the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from git_envhist.errors import UsageError
from git_envhist.history.catalog import path_below


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    (top / "sub").mkdir(parents=True)
    (top / "link").symlink_to("sub")
    (tmp_path / "way").symlink_to("project")
    (tmp_path / "shortcut").symlink_to("project/sub")
    return top


@pytest.mark.parametrize(
    ("directory", "typed", "path"),
    [
        (".", "sub/file", "sub/file"),
        (".", "sub/", "sub"),
        (".", ".", ""),
        ("sub", "file", "sub/file"),
        ("sub", "../link", "link"),
        # The link may be a directory in a snapshot.
        (".", "link/file", "link/file"),
        (".", "link", "link"),
        # Outside of the environment, links are followed.
        ("../way", "link/file", "link/file"),
        ("../way/sub", "file", "sub/file"),
        ("..", "way/link/file", "link/file"),
        ("..", "shortcut/file", "sub/file"),
        ("..", "way", ""),
    ],
)
def test_links_inside_of_the_environment_are_not_followed(
    top: Path, directory: str, typed: str, path: str
) -> None:
    place = os.path.join(top, directory)
    for word in (typed, os.path.join(place, typed)):
        assert path_below(os.fsencode(top), os.fsencode(place), os.fsencode(word)) == os.fsencode(path)


@pytest.mark.parametrize("typed", ["..", "../elsewhere", "/", "/etc", "../projects"])
def test_path_outside_is_refused(top: Path, typed: str) -> None:
    with pytest.raises(UsageError, match="outside the environment"):
        path_below(os.fsencode(top), os.fsencode(top), os.fsencode(typed))
