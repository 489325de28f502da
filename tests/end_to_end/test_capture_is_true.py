"""A snapshot equals what find and sha256sum list: arbitrary trees, and arbitrary edits between two captures."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.end_to_end.captures import assert_holds, capture
from tests.support.depth import examples
from tests.support.oracle import git_fsck, listing
from tests.support.repository import Repo, make_repo
from tests.support.strategies import edits, trees
from tests.support.trees import Directory, Fifo, File, Forge, HardLink, Link, Node, Socket, apply, build

EVERYTHING: dict[bytes, Node] = {
    b"plain": File(b"text\n", 0o640, 1_600_000_000_000_000_001),
    b"script": File(b"#!/bin/sh\n", 0o755),
    b"odd bits": File(b"x", 0o6711),
    b"old": File(b"before 1970", mtime_ns=-1_000_000_001),
    b"empty file": File(b""),
    b"empty": Directory(0o700, 77),
    b"a/deep/er/place/file": File(b"deep"),
    b"a/deep": Directory(0o1777, 123_456_789),
    b"link": Link(b"plain", 5),
    b"dangling": Link(b"\x1b[2Jnowhere"),
    b"first": File(b"shared", xattrs=(("user.note", b"\0\xff"),)),
    b"second": HardLink(b"first"),
    b"a/third": HardLink(b"first"),
    b"pipe": Fifo(0o620),
    b"socket": Socket(9),
    b"new\nline": File(b"1"),
    b"\xff\xfe": File(b"2"),
    "é".encode(): File(b"composed"),
    "e\u0301".encode(): File(b"decomposed"),
    b"CASE": File(b"upper"),
    b"case": File(b"lower"),
    b".gitattributes": File(b"* text eol=crlf\n"),
    b".gitmodules": File(b"[submodule]\n"),
    b".gitignore": File(b"*\n"),
    b".GIT": File(b"disguised"),
    b"%2egit": File(b"looks escaped"),
    b"a/.git::$INDEX_ALLOCATION": File(b"ntfs"),
    b".envhist/own": File(b"a user's own"),
    b"x" * 255: File(b"longest"),
    b"crlf": File(b"a\r\nb\r\n"),
}


@contextmanager
def fresh_repo() -> Iterator[Repo]:
    directory = tempfile.mkdtemp()
    try:
        yield make_repo(Path(directory) / "work")
    finally:
        shutil.rmtree(directory)


def test_every_kind_of_entry_is_captured(repo: Repo) -> None:
    build(EVERYTHING, repo.path)
    assert_holds(repo, capture(repo, "everything"))
    assert git_fsck(repo.path) == ""


@settings(max_examples=examples(4, 25))
@given(trees())
def test_an_arbitrary_tree_is_captured(tree: dict[bytes, Node]) -> None:
    with fresh_repo() as repo:
        build(tree, repo.path)
        assert_holds(repo, capture(repo))
        assert git_fsck(repo.path) == ""


@settings(max_examples=examples(4, 25))
@given(st.data(), st.booleans())
def test_arbitrary_edits_between_two_captures_are_in_the_second(
    data: st.DataObject, with_cache: bool
) -> None:
    tree = data.draw(trees(max_entries=12))
    with fresh_repo() as repo:
        build(tree, repo.path)
        before = listing(repo.path, top=True)
        first = capture(repo)
        # Edit without a pause, within one tick of many clocks.
        apply(data.draw(edits(tree)), repo.path)
        if not with_cache:
            shutil.rmtree(repo.path / ".git" / "envhist" / "cache", ignore_errors=True)
        assert_holds(repo, capture(repo))
        assert_holds(repo, first, before)


def test_edit_within_one_tick_that_keeps_size_and_time_is_noticed(repo: Repo) -> None:
    repo.write("data", b"aaaa")
    for _ in range(5):
        capture(repo)
        apply([Forge(b"data")], repo.path)
        assert_holds(repo, capture(repo))


def test_capture_without_changes_has_the_same_tree(repo: Repo) -> None:
    build(EVERYTHING, repo.path)
    first, second = capture(repo), capture(repo)
    assert repo.git("rev-parse", f"{first}^{{tree}}") == repo.git("rev-parse", f"{second}^{{tree}}")


def test_directory_link_and_file_may_replace_each_other(repo: Repo) -> None:
    for node in (
        Directory(),
        Link(b"app.py"),
        File(b"file"),
        Link(b"/"),
        Directory(0o700),
        Fifo(),
        File(b""),
    ):
        place = repo.path / "place"
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        elif os.path.lexists(place):
            place.unlink()
        build({b"place": node}, repo.path)
        assert_holds(repo, capture(repo))


def test_file_with_any_git_filter_is_stored_unfiltered(repo: Repo) -> None:
    repo.git("config", "core.autocrlf", "true")
    repo.git("config", "filter.shout.clean", "tr a-z A-Z; touch RAN")
    repo.git("config", "filter.shout.smudge", "tr A-Z a-z; touch RAN")
    repo.git("config", "filter.shout.required", "true")
    repo.write(
        ".gitattributes",
        b"*.txt filter=shout ident\n*.crlf text eol=crlf\n*.u16 working-tree-encoding=UTF-16\n",
    )
    repo.write("a.txt", b"quiet $Id$\n")
    repo.write("b.crlf", b"one\r\ntwo\n")
    repo.write("c.u16", "zwei".encode("utf-16"))
    assert_holds(repo, capture(repo))
    assert not (repo.path / "RAN").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_changed_owner_of_a_directory_does_not_apply_to_its_files(repo: Repo) -> None:
    repo.write("sub/file", "x")
    capture(repo, "before")
    time.sleep(0.05)
    capture(repo, "settled")
    os.chown(repo.path / "sub", 1000, 1000)

    assert_holds(repo, capture(repo, "after"))
