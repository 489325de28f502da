"""Patterns with many stars: they match like git's, within a time limit."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from git_envhist.errors import UsageError
from git_envhist.git.pathspecs import with_positive
from git_envhist.worktree.path_patterns import (
    BadPattern,
    NotAPattern,
    TooSlow,
    bounded,
    needs_bounds,
    path_matcher,
    usable,
    within,
)
from tests.support.repository import Repo

NAME = "a" * 250
LONG = "/".join([NAME] * 15)
SHAPES = [
    "*a" * 30 + "*b",
    "**" * 30 + "b",
    "a**a" * 20 + "b",
    "**/" + "*a" * 30 + "*b",
    "**/a*/" * 12 + "*b",
    "/**/a/**/a/**/" * 10 + "b",
    "*[ab]" * 30 + "*c",
    "*?" * 30 + "b",
    "!" + "*a" * 30 + "*b",
    "*a" * 30 + "*b/",
    "*/" * 14 + "*a*a*a*a*a*a*b",
]
PIECES = (
    *("a", "b", "*", "*", "*", "**/", "/", "/**/", "/**", "?", "[ab]", "[!a]", "[a-b]", "\\a", "\\*"),
    *("[]a]", "[^b]*", "ab", "]", "[b-a]", "[[:alpha:]]", "-", "***/"),
)
NAMES = ("a", "b", "ab", "aab", "abab", "a-b", "b]", "a*b", "aaa", "[a", "a\\b", "a\nb", "ba", "x")
DIRECTORIES = ("", "a/", "ab/", "a/b/", "a/ab/", "b/a/b/", "a/a/a/", "aab/b/")
STARS_BEHIND_A_NAME = re.compile(r"[^/*]\*\*+/")
"""git before 2.40 sometimes treats these like `**`, contrary to its manual."""


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape[:12])
def test_pattern_is_matched_quickly(shape: str) -> None:
    for path in (LONG, NAME, LONG + "/", "a/" * 2000 + "a"):
        began = time.process_time()
        matches = path_matcher([shape, "x"])
        assert matches is not None
        matches(path.encode())
        assert time.process_time() - began < 2


def make_tree(top: Path) -> list[tuple[str, bool]]:
    """Make files and directories; return (path, is a directory) of each."""
    for directory in DIRECTORIES:
        (top / directory / "xdir").mkdir(parents=True, exist_ok=True)
    for directory in DIRECTORIES:
        for number, name in enumerate(NAMES):
            place = top / directory / name
            if not os.path.lexists(place):
                place.mkdir() if number % 5 == 4 else place.write_bytes(b"")
    found = []
    for above, directories, files in os.walk(top):
        directories[:] = [name for name in directories if name != ".git"]
        here = os.path.relpath(above, top)
        found += [(os.path.normpath(os.path.join(here, name)), True) for name in directories]
        found += [(os.path.normpath(os.path.join(here, name)), False) for name in files]
    return [(path, is_directory) for path, is_directory in found if path != ".gitignore"]


def ignored_by(regex: re.Pattern[str], path: str, is_directory: bool) -> bool:
    """Return whether a path or a directory above it matches, tested from the top down as by git."""
    names = path.split("/")
    for depth in range(len(names)):
        slash = "/" if is_directory or depth + 1 < len(names) else ""
        if regex.match("/".join(names[: depth + 1]) + slash):
            return True
    return False


@pytest.mark.parametrize("seed", range(4))
def test_pattern_matches_as_git_check_ignore(seed: int, repo: Repo) -> None:
    chance = random.Random(seed)
    paths = make_tree(repo.path)
    asked = "\0".join(path for path, _ in paths) + "\0"
    for _ in range(150):
        text = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 9)))
        if not text.strip("/") or STARS_BEHIND_A_NAME.search(text):
            continue
        repo.write(".gitignore", text + "\n")
        done = repo.execute("git", "check-ignore", "--no-index", "--stdin", "-z", input=asked, check=False)
        regex = re.compile(bounded(text).regex, re.DOTALL)
        ours = {path for path, is_directory in paths if ignored_by(regex, path, is_directory)}
        assert ours == {path for path in done.out.split("\0") if path}, text


def test_ordinary_patterns_are_matched_by_the_library() -> None:
    ordinary = ("*.pyc", "__pycache__/", "/build/*.o", "a/**/b", "**/x", "a/**", "docs/*/img/*.png", "!keep")
    assert not any(map(needs_bounds, ordinary))


def test_negated_pattern_with_many_stars_includes_again() -> None:
    matches = path_matcher(["*.log", "!*a*b*.log"])
    assert matches is not None
    assert [matches(path) for path in (b"x.log", b"xaxb.log", b"d/ab.log")] == [True, False, False]


def test_pattern_with_trailing_backslash_is_invalid() -> None:
    with pytest.raises(NotAPattern):
        bounded("*a*a*\\")
    with pytest.raises(BadPattern):
        path_matcher(["*a*a*\\"])


def test_patterns_over_the_limits_give_warnings() -> None:
    good, complaints = usable(["x"] * 10_001)
    assert (len(good), len(complaints)) == (10_000, 1)
    good, complaints = usable(["y" * 5000, "x"])
    assert (good, len(complaints)) == (("x",), 1)


def test_matching_stops_after_its_timeout() -> None:
    (test,) = within(0.0, lambda path: bool(time.sleep(0.01)))
    assert test is not None
    test(b"x")
    with pytest.raises(TooSlow):
        test(b"x")


def test_pathspec_that_git_matches_in_exponential_time_is_refused() -> None:
    with pytest.raises(UsageError):
        with_positive([b":(glob)" + b"*a" * 30 + b"*b"])
    assert with_positive([b"*a" * 30, b":(glob)**/*_test_*.py"])


def test_capture_ends_with_a_hostile_ignore_file(repo: Repo) -> None:
    repo.write(".envhistignore", "\n".join(SHAPES) + "\nleft*o*t\n")
    repo.git("config", "envhist.secret", "*a" * 30 + "*b")
    repo.write("/".join([NAME] * 3) + "/" + NAME, "x")
    repo.write("left out", "x")
    began = time.monotonic()
    repo.run("envlog", "capture", "-m", "x", check=True)
    assert time.monotonic() - began < 30
    stored = subprocess.run(
        ["git", "-C", repo.path, "log", "--all", "--name-only", "--format="], capture_output=True, check=True
    )
    assert NAME.encode() in stored.stdout
    assert b"left out" not in stored.stdout
