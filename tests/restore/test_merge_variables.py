"""Variables that changed on both sides are merged by name; comments and order of the present file stay."""

from __future__ import annotations

import pytest

from git_envhist.restore.merge_variables import loses_text, merge_variables
from git_envhist.restore.three_way import Prefer

BASE = b"# database\nURL=one\nexport TOKEN='a b' # note\n\nMODE=dev\n"
TOKEN = b"export TOKEN='a b' # note\n"
LINES = BASE.replace(b"one", b'"x\ny"')


def merged(ours: bytes, theirs: bytes) -> bytes:
    found = merge_variables(BASE, ours, theirs, Prefer.NEITHER)
    assert found is not None
    assert found.conflicts == ()
    return found.text


def test_values_of_both_sides_are_kept() -> None:
    theirs = BASE.replace(b"'a b'", b"c")
    assert merged(BASE.replace(b"one", b"two"), theirs) == theirs.replace(b"one", b"two")


def test_variable_that_theirs_removed_is_removed_and_a_new_one_of_ours_stays() -> None:
    assert merged(BASE + b"NEW=1\n", BASE.replace(b"MODE=dev\n", b"")) == BASE.replace(b"MODE=dev", b"NEW=1")


def test_variable_that_theirs_has_is_inserted_after_the_one_before_it() -> None:
    ours = BASE.replace(b"URL=one\n", b"")
    assert merged(ours, BASE.replace(b"MODE", b"X=1\nMODE")) == ours.replace(TOKEN, TOKEN + b"X=1\n")
    assert merged(ours, b"X=1\n" + BASE) == ours.replace(TOKEN, b"X=1\n" + TOKEN)
    assert merged(b"MODE=dev", BASE.replace(b"dev", b"dev\nX=1")) == b"MODE=dev\nX=1\n"


def test_line_ends_and_values_of_several_lines_of_ours_are_kept() -> None:
    ours = LINES.replace(b"\n", b"\r\n")
    assert merged(ours, BASE.replace(b"dev", b"prod")) == ours.replace(b"dev", b"prod")


@pytest.mark.parametrize(
    ("prefer", "value"), [(Prefer.NEITHER, b"ours"), (Prefer.OURS, b"ours"), (Prefer.THEIRS, b"theirs")]
)
def test_variable_that_changed_on_both_sides_is_a_conflict_by_name(prefer: Prefer, value: bytes) -> None:
    ours, theirs = BASE.replace(b"one", b"ours"), BASE.replace(b"one", b"theirs").replace(b"dev", b"prod")
    found = merge_variables(BASE, ours, theirs, prefer)
    assert found is not None
    assert found.text == BASE.replace(b"one", value).replace(b"dev", b"prod")
    assert found.conflicts == ((b"URL",) if prefer is Prefer.NEITHER else ())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (BASE + b"URL=one\n", BASE.replace(b"one", b"two")),
        (BASE.replace(b"dev", b"it's"), BASE.replace(b"MODE=dev", b"MODE=dev\nLAST=it's")),
        (BASE, BASE.replace(b"dev", b'"open')),
        (BASE + b"LAST='never closed\n", b"NEW=1\n"),
        (LINES.replace(b"dev\n", b"dev\r\n"), BASE.replace(b"dev", b"prod")),
        (LINES, BASE.replace(b"dev\n", b"prod\r\n")),
    ],
)
def test_file_whose_edit_is_not_certain_is_not_merged_by_name(ours: bytes, theirs: bytes) -> None:
    assert merge_variables(BASE, ours, theirs, Prefer.NEITHER) is None


@pytest.mark.parametrize(
    ("old", "new", "is_lost"),
    [
        (b"one", b"two", False),
        (b"MODE=dev\n", b"", False),
        (b"\n\nMODE", b"\nNEW=1\n\n\nMODE", False),
        (b"# database", b"# databases", True),
        (b"export TOKEN", b"TOKEN", True),
        (b"MODE=dev\n", b"MODE=dev\nsource ./more\n", True),
        (b"URL=one\n", b"URL=zero\nURL=one\n", True),
    ],
)
def test_change_of_theirs_beside_the_values_is_found(old: bytes, new: bytes, is_lost: bool) -> None:
    theirs = BASE.replace(old, new)
    assert theirs != BASE
    assert loses_text(BASE, BASE.replace(b"'a b'", b"c"), theirs) is is_lost
    assert not loses_text(BASE, theirs, theirs)
    assert not loses_text(BASE, theirs, BASE)
