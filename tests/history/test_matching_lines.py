"""Lines are compared in bounded time: `SequenceMatcher` alone takes minutes for the texts of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.diff.compare_series import ContentSearch
from git_envhist.git.process import Git
from git_envhist.history import blame, search
from git_envhist.history.matching_lines import matching_blocks
from tests.support.repository import Repo

EQUAL = b"the same line\n"


@given(
    st.lists(st.sampled_from([b"a", b"b", b"c", b"d"])), st.lists(st.sampled_from([b"a", b"b", b"c", b"e"]))
)
def test_blocks_are_equal_and_do_not_overlap(old: list[bytes], new: list[bytes]) -> None:
    blocks = sorted(matching_blocks(old, new))
    assert all(old[a : a + size] == new[b : b + size] for a, b, size in blocks)
    assert all(
        a + size <= later and b + size <= new_later
        for (a, b, size), (later, new_later, _) in pairwise(blocks)
    )


def test_single_lines_divide_a_large_text() -> None:
    old = [b"x", *(b"%d" % at for at in range(500)), b"y"]
    new = [b"u", *(b"%d" % at for at in range(500) if at % 7), b"v"]
    assert sum(size for _, _, size in matching_blocks(old, new)) == len(new) - 2


def test_pattern_is_searched_in_a_text_of_equal_lines(repo: Repo) -> None:
    git = Git(str(repo.path / ".git"), str(repo.path))
    wanted = ContentSearch(None, "^needle", False)
    old, new = b"a\n" + EQUAL * 40_000 + b"b\n", b"c\n" + EQUAL * 40_005 + b"d\n"
    assert not search.changes_line(git, old, new, wanted)
    assert search.changes_line(git, old, new + b"needle\n", wanted)
    assert not search.changes_line(git, old, new, ContentSearch(None, "nothing", False))


def test_binary_file_is_not_read_to_its_end() -> None:
    def blocks() -> Iterator[bytes]:
        yield b"a\0"
        raise AssertionError("read on")

    assert search.read_text(blocks()) is None


def test_lines_of_equal_text_are_assigned() -> None:
    versions = [("new", b"a\n" + EQUAL * 19_000 + b"b\n"), ("old", EQUAL * 18_000)]
    assert len(blame.blame_versions(b"f", versions)) == 19_002


def test_older_version_with_too_many_lines_is_refused() -> None:
    with pytest.raises(blame.NoLines, match="20,000 lines"):
        blame.blame_versions(b"f", [("new", b"a\n"), ("old", b"a\n" * 20_002)])


def test_versions_of_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "MAX_BYTES", 10)
    with pytest.raises(blame.NoLines, match="too large"):
        blame.blame_versions(b"f", [("new", b"123456\n"), ("old", b"123456\n")])


def test_versions_before_the_last_wanted_one_are_not_read() -> None:
    def versions() -> Iterator[tuple[str, bytes]]:
        yield "new", b"a\n"
        yield "old", b"b\n"
        raise AssertionError("read on")

    assert [line.commit for line in blame.blame_versions(b"f", versions())] == ["new"]
