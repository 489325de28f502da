"""The grammar: the meaning of a text before any snapshot is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.errors import UsageError
from git_envhist.history.revisions import (
    Ancestor,
    AtTime,
    BareWord,
    ByIntent,
    ByVerdict,
    Newest,
    RangeSplit,
    Revision,
    WorkingTree,
    range_splits,
    readings,
    why_not_a_name,
)
from git_envhist.model import VerdictStatus


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        ("@", Newest()),
        ("now", WorkingTree()),
        ("@~3", Ancestor(Newest(), 3)),
        ("@~", Ancestor(Newest(), 1)),
        ("@~0", Ancestor(Newest(), 0)),
        ("@~1~2", Ancestor(Ancestor(Newest(), 1), 2)),
        ("@~~", Ancestor(Ancestor(Newest(), 1), 1)),
        ("good", ByVerdict(VerdictStatus.PASS)),
        ("bad@{2}", ByVerdict(VerdictStatus.FAIL, 2)),
        ("good~1", Ancestor(ByVerdict(VerdictStatus.PASS), 1)),
        ("good@{2}~1", Ancestor(ByVerdict(VerdictStatus.PASS, 2), 1)),
        ("@{10:27}", AtTime("10:27")),
        ("@{2 hours ago}~2", Ancestor(AtTime("2 hours ago"), 2)),
        ("laptop/app-1a2b3c@{10:27}", AtTime("10:27", "laptop/app-1a2b3c")),
        ("origin/laptop/app-1a2b3c", BareWord("origin/laptop/app-1a2b3c")),
        ("9ac31f", BareWord("9ac31f")),
        ("before-refactor~2", Ancestor(BareWord("before-refactor"), 2)),
        ("HEAD^{/fix bug}", BareWord("HEAD^{/fix bug}")),
        ("'2 hours ago'", BareWord("'2 hours ago'")),
        ("goodness", BareWord("goodness")),
        ("~2", BareWord("~2")),
        (":/auth refactor", ByIntent("auth refactor")),
        (":/a..b", ByIntent("a..b")),
        (":/@{10:27}", ByIntent("@{10:27}")),
        ("a~99999999999", BareWord("a~99999999999")),
    ],
)
def test_text_has_one_reading(text: str, revision: Revision) -> None:
    assert readings(text)[0] == revision


def test_intent_that_ends_like_a_step_is_read_as_a_whole_first() -> None:
    assert readings(":/fix~1~2") == (
        ByIntent("fix~1~2"),
        Ancestor(ByIntent("fix~1"), 2),
        Ancestor(Ancestor(ByIntent("fix"), 1), 2),
    )
    assert readings(":/~2") == (ByIntent("~2"),)


@pytest.mark.parametrize(
    "text", ["", "^", "^a", "@^", "@^2", "@^{tree}", ":/", ":/  ", "now~1", "good@{0}", "bad@{x}", "good@{}"]
)
def test_invalid_revision_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as failure:
        readings(text)
    assert failure.value.hint


@given(st.text(alphabet="@~^{}:/.0129 agodnow\n’é"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        ways = readings(text)
    except UsageError:
        return
    assert ways


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("a..b", [("a", "b")]),
        ("a..", [("a", "")]),
        ("..b", [("", "b")]),
        ("..", []),
        ("a...b", []),
        ("a", []),
        (":/x..y..:/z", [(":/x", "y..:/z"), (":/x..y", ":/z")]),
        ("HEAD~1..@{10:27}", [("HEAD~1", "@{10:27}")]),
    ],
)
def test_every_possible_split_of_a_range_is_returned(text: str, cuts: list[tuple[str, str]]) -> None:
    assert range_splits(text) == tuple(RangeSplit(before, after) for before, after in cuts)


@pytest.mark.parametrize(
    "name",
    [
        "before-refactor",
        "v1.2",
        "main",
        "deadbeef",
        "10:27",
        "größer",
        "a b",
        "x/y",
        "2026-11-18",
        "a~b",
        "a^b",
    ],
)
def test_name_may_be_any_word_that_can_be_typed(name: str) -> None:
    assert why_not_a_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        " x",
        "x ",
        "a\nb",
        "\x1b[31m",
        "@",
        "HEAD",
        "now",
        "good",
        "bad",
        "3",
        "a..b",
        "x@{1}",
        ":/fix",
        "-x",
        "^x",
        "~1",
        "x~2",
        "x~",
    ],
)  # fmt: skip
def test_name_that_cannot_be_typed_as_a_revision_is_refused(name: str) -> None:
    assert why_not_a_name(name)
