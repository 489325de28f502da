"""Fact texts: one spelling, compared as sets, untrusted input, and the differences shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from git_envhist.diff.facts import fact_rows, pair_facts
from git_envhist.diff.summary import summarize
from git_envhist.model import ChangeCount, EnvPath, Fact, FactChange, Role
from git_envhist.snapshots.fact_text import (
    differing_facts,
    fact_line,
    read_fact,
    read_fact_text,
    without_places,
    write_facts,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("\udcff x%")
facts = st.builds(
    Fact, st.just("pip"), words.filter(bool), words.filter(lambda text: text != "-"),
    st.binary(max_size=8).map(EnvPath), words, st.booleans(),
)  # fmt: skip
KINDS = {"pip": "packages", "npm": "packages", "system": "packages", "env": "env"}


def text(*lines: str, version: int = 1) -> bytes:
    return write_facts("pip", version, [line.encode() for line in lines])


@given(facts)
def test_fact_line_is_parsed_back(fact: Fact) -> None:
    line = fact_line(fact)
    assert b"\n" not in line
    assert read_fact("pip", line) == fact


@given(st.binary(max_size=200))
def test_malformed_fact_text_raises_nothing(data: bytes) -> None:
    for whole in (data, b"envhist-facts 1 pip 1\n" + data):
        found = read_fact_text("pip", whole)
        for line in found.lines if found is not None else ():
            read_fact("pip", line)
        differing_facts("pip", whole, text("a 1"))


def test_difference_is_reported_once_in_any_order() -> None:
    before = text("a 1 at=x", "b 1 at=x", "c 1 at=x", "c 1 at=y", "d 1")
    after = text("a 2 at=z", "b 1 at=y", "c 1 at=y", "e 1")
    assert pair_facts(*differing_facts("pip", before, after)) == (
        FactChange("pip", "a", "1", "2", EnvPath(b"z")),
        FactChange("pip", "d", "1", None),
        FactChange("pip", "e", None, "1"),
    )


def test_facts_of_different_probe_versions_are_not_compared() -> None:
    assert differing_facts("pip", text("a 1"), text("a 2", version=2)) == ([], [])
    assert differing_facts("pip", b"", text("a 2")) == ([], [])


def test_lines_of_removed_directories_are_removed() -> None:
    lines = [b"a 1 at=x", b"b 1 at=x%20y auto", b"c 1"]
    assert without_places(lines, {b"x y"}) == [b"a 1 at=x", b"c 1"]
    assert without_places(lines, {b"x", b"y"}) == [b"b 1 at=x%20y auto", b"c 1"]


def change(probe: str, key: str, before: str | None, after: str | None, **words: object) -> FactChange:
    return FactChange(probe, key, before, after, **words)  # type: ignore[arg-type]


def test_summary_line_names_direct_packages() -> None:
    installed = [
        change("pip", ".venv/blinker", None, "1.9", role=Role.TRANSITIVE),
        change("pip", ".venv/flask", None, "3.0.1"),
        change("pip", ".venv/click", "8.1.7", "8.5.1", role=Role.TRANSITIVE),
    ]
    assert summarize(installed, ChangeCount(1200, 4), KINDS) == "pip: +flask 3.0.1, +1 ~1 more · 1,204 files"
    assert summarize(installed[2:], ChangeCount(), KINDS) == "pip: click 8.1.7 → 8.5.1"
    server = change("system", "postgresql-15", None, "1:15.18-0+deb12u1", by="dpkg")
    assert summarize([server], ChangeCount(), KINDS) == "system: +postgresql-15 15.18"


def test_summary_line_names_variables() -> None:
    variables = [change("env", f".env.local/{key}", "ab", "cd") for key in ("API_URL", "B", "C")]
    assert summarize(variables[:1], ChangeCount(0, 3), KINDS) == "~3 files · .env.local: ~API_URL"
    assert summarize(variables, ChangeCount(0, 1), KINDS) == "~1 file · .env.local: ~API_URL, ~B, ~1 more"
    assert summarize([], ChangeCount(0, 2), KINDS) == "~2 files"
    assert summarize([], ChangeCount(3811), KINDS, first=True) == "3,811 files in all"


def test_package_revision_is_shown_when_only_it_differs() -> None:
    changed = change("system", "openssl", "3.0.1-1", "3.0.1-2", by="dpkg")
    assert summarize([changed], ChangeCount(), KINDS) == "system: openssl 3.0.1-1 → 3.0.1-2"


def test_rows_are_grouped_by_probe_and_place_and_keep_scopes() -> None:
    rows = fact_rows(
        [
            change("zzz", "k", None, "1"),
            change("npm", "node_modules/@types/node", None, "1"),
            change("pip", "x", "1", None),
        ],
        tuple(KINDS),
    )
    assert [(row.probe, row.place) for row in rows] == [("pip", ""), ("npm", "node_modules"), ("zzz", "")]
