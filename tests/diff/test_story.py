"""Counts in words, and many changed files in few rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.diff.summary import (
    SummaryRow,
    count_changes,
    describe_counts,
    describe_marks,
    fold_by_directory,
)
from git_envhist.model import Change, ChangeCount, ChangeSide, EntryKind, EnvPath


def side(path: str) -> ChangeSide:
    return ChangeSide(EnvPath(path.encode()), EntryKind.FILE, 0o644, None)


def added(*paths: str) -> list[Change]:
    return [Change(None, side(path)) for path in paths]


def modified(*paths: str) -> list[Change]:
    return [Change(side(path), side(path)) for path in paths]


def removed(*paths: str) -> list[Change]:
    return [Change(side(path), None) for path in paths]


def told(rows: tuple[SummaryRow, ...]) -> list[str]:
    return [_told(row) for row in rows]


def _told(row: SummaryRow) -> str:
    path = row.path.decode()
    if row.more:
        return f"{path}… {row.more} more {describe_marks(row.count)}"
    return f"{describe_marks(row.count)[0]} {path}" if row.change else f"{path} {describe_marks(row.count)}"


@pytest.mark.parametrize(
    ("changed", "first", "words"),
    [
        (ChangeCount(3811), True, "3,811 files in all"),
        (ChangeCount(1), True, "1 file in all"),
        (ChangeCount(), True, "0 files in all"),
        (ChangeCount(0, 2, 0), False, "~2 files"),
        (ChangeCount(0, 1, 0), False, "~1 file"),
        (ChangeCount(1204, 3, 1), False, "+1,204 ~3 −1 files"),
        (ChangeCount(0, 0, 12), False, "−12 files"),
        (ChangeCount(), False, "nothing changed"),
    ],
)
def test_counts_have_the_format_of_a_list(changed: ChangeCount, first: bool, words: str) -> None:
    assert describe_counts(changed, first) == words


def test_large_directories_fold_and_single_files_are_named() -> None:
    changes = [
        *modified("config/app.toml"),
        *added(*(f".venv/lib/python3.11/site-packages/flask/{n}.py" for n in range(1187))),
        *added(*(f"node_modules/a/{n}" for n in range(3))),
        *modified(*(f"node_modules/b/{n}" for n in range(11))),
        *removed(*(f"node_modules/c/{n}" for n in range(2))),
    ]
    assert told(fold_by_directory(changes)) == [
        ".venv/ +1,187",
        "node_modules/ +3 ~11 −2",
        "~ config/app.toml",
    ]


def test_few_files_are_all_named() -> None:
    changes = [*added("src/new.py", "README"), *modified("src/app.py"), *removed("old/gone")]
    assert told(fold_by_directory(changes)) == ["+ README", "− old/gone", "~ src/app.py", "+ src/new.py"]


def test_the_smallest_directories_are_opened_while_there_is_room() -> None:
    changes = added("a/1", "a/2", "b/1", "b/2", "b/3", "c/1", "c/2", "c/3", "c/4")
    assert told(fold_by_directory(changes, 6)) == ["c/ +4", "+ a/1", "+ a/2", "+ b/1", "+ b/2", "+ b/3"]
    assert told(fold_by_directory(changes, 4)) == ["b/ +3", "c/ +4", "+ a/1", "+ a/2"]
    assert told(fold_by_directory(changes, 3)) == ["a/ +2", "b/ +3", "c/ +4"]


def test_folding_begins_below_the_common_directory() -> None:
    changes = added(*(f"work/src/{package}/{n}" for package in ("core", "cli") for n in range(50)))
    assert told(fold_by_directory(changes)) == ["work/src/cli/ +50", "work/src/core/ +50"]


def test_directories_above_the_limit_are_one_row() -> None:
    changes = added(*(f"{name}/{n}" for name in "abcdef" for n in range(ord(name) - ord("a") + 2)))
    assert told(fold_by_directory(changes, 3)) == ["e/ +6", "f/ +7", "… 4 more +14"]


def test_a_file_and_a_directory_of_one_name_are_two_rows() -> None:
    changes = [*removed("x"), *added(*(f"x/{n}" for n in range(20)))]
    assert told(fold_by_directory(changes)) == ["x/ +20", "− x"]


def test_caches_are_one_row_per_name() -> None:
    changes = [
        *added(*(f"src/{n}/__pycache__/x.pyc" for n in range(300))),
        *added(".pytest_cache/v/lastfailed", *(f"target/debug/{n}" for n in range(50))),
        *added("src/0/dist.py", ".venv/lib/__pycache__/y.pyc", "dist/app.js"),
    ]
    rows = fold_by_directory(changes)
    assert [(row.path, row.count.total, row.sort, row.places) for row in rows] == [
        (b".pytest_cache/", 1, "cache", 1),
        (b"__pycache__/", 300, "cache", 300),
        (b"target/", 50, "built", 1),
        (b".venv/lib/__pycache__/y.pyc", 1, "", 1),
        (b"dist/app.js", 1, "", 1),
        (b"src/0/dist.py", 1, "", 1),
    ]
    alone = fold_by_directory(added("src/__pycache__/x.pyc"))
    assert [(row.path, row.sort) for row in alone] == [(b"src/__pycache__/", "cache")]


def test_no_changes_have_no_rows() -> None:
    assert fold_by_directory([]) == ()


def test_hundred_thousand_files_are_a_few_rows() -> None:
    changes = added(*(f"{n % 40}/{n % 1000}/{n}" for n in range(100_000)))
    rows = fold_by_directory(changes)
    assert len(rows) == 12
    assert sum(row.count.total for row in rows) == 100_000


paths = st.lists(
    st.sampled_from(["a", "b", "ab", "c d", "e", "__pycache__", "dist"]), min_size=1, max_size=4
).map("/".join)


@given(st.lists(paths, unique=True, max_size=40), st.integers(1, 15))
def test_rows_cover_every_change_within_the_limit(found: list[str], limit: int) -> None:
    changes = [*added(*found[::3]), *modified(*found[1::3]), *removed(*found[2::3])]
    rows = fold_by_directory(changes, limit)
    whole = count_changes(changes)
    assert len(rows) <= limit
    assert sum(row.count.added for row in rows) == whole.added
    assert sum(row.count.modified for row in rows) == whole.modified
    assert sum(row.count.removed for row in rows) == whole.removed
    for row in rows:
        assert row.more or row.places > 1 or any(change.path.startswith(row.path) for change in changes)
