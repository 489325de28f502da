"""The list as a graph: forks and restores, drawn as git draws branches and merges."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.history.graph import connected, draw, parents_of, shown_parents, sort_for_graph
from git_envhist.model import RestoreRole, Snapshot
from tests.cli.moments import at, moment

Parents = Mapping[str, tuple[str, ...]]


def drawn(shown: str, parents: Parents) -> list[str]:
    lines = []
    for row, one in zip(draw(shown, parents), shown, strict=True):
        lines += [*row.before, f"{row.mark} {one}", *row.after]
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    ("parents", "lines"),
    [
        ({"C": ("B",), "B": ("A",), "A": ()}, ["* C", "* B", "* A"]),
        # A restore of B: the states that it undoes are another lane.
        (
            {"E": ("B",), "D": ("C",), "C": ("B",), "B": ("A",), "A": ()},
            ["* E", "| * D", "| * C", "|/", "* B", "* A"],
        ),
        # Some paths of A were restored after C.
        ({"D": ("A", "C"), "C": ("B",), "B": ("A",), "A": ()}, ["* D", "|\\", "| * C", "| * B", "|/", "* A"]),
        (
            {"E": ("B",), "D": ("B",), "C": ("B",), "B": ("A",), "A": ()},
            ["* E", "| * D", "| | * C", "| |/", "|/|", "|/", "* B", "* A"],
        ),
        ({"C": ("A",), "B": (), "A": ()}, ["* C", "| * B", "* A"]),
        (
            {"E": ("C",), "D": ("A",), "C": (), "B": ("A",), "A": ()},
            ["* E", "| * D", "* | C", " /", "| * B", "|/", "* A"],
        ),
    ],
    ids=["chain", "undone", "part", "three", "root", "root-first"],
)
def test_graph_is_drawn_as_expected(parents: Parents, lines: list[str]) -> None:
    assert drawn("".join(sorted(parents, reverse=True)), parents) == lines


def followed(lines: list[str], at: int, column: int) -> set[str]:
    """Return the snapshots to which the lanes below a mark lead, read from the picture alone."""
    found: set[str] = set()
    starts = [(at, column, "*")]
    while starts:
        row, column, mark = starts.pop()
        row += 1
        below = lines[row] if row < len(lines) else ""
        step = {"*": 0, "|": 0, "/": -1, "\\": 1}[mark]

        def cell(place: int, below: str = below) -> str:
            return below[place] if 0 <= place < len(below) else " "

        ways = [(column + 2 * step, mark)] if step and cell(column + 2 * step) == mark else []
        if not ways:
            here = column + step
            if cell(here) in "|*" and cell(here) != " ":
                ways.append((here, cell(here)))
            if not ways and cell(here - 1) == "/":
                ways.append((here - 1, "/"))
            if cell(here + 1) == "\\" and (mark == "*" or not ways):
                ways.append((here + 1, "\\"))
        for place, sign in ways:
            if sign == "*":
                found.add(below[-1])
            else:
                starts.append((row, place, sign))
    return found


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=2, unique=True), min_size=1, max_size=12))
def test_every_lane_leads_to_its_parent(steps: list[list[int]]) -> None:
    parents = {
        chr(65 + n): tuple(sorted({chr(65 + m % n) for m in more})) if n else ()
        for n, more in enumerate(steps)
    }
    order = "".join(sorted(parents, reverse=True))
    lines = drawn(order, parents)
    for number, line in enumerate(lines):
        if "*" in line:
            assert followed(lines, number, line.index("*")) == set(parents[line[-1]]), "\n".join(lines)


def chain(*spots: tuple[str, dict[str, object]]) -> list[Snapshot]:
    """A timeline, oldest first; returned newest first, a minute between each."""
    made: list[Snapshot] = []
    for minute, (digits, fields) in enumerate(spots):
        parent = made[-1].commit if made else None
        made.append(
            moment(digits, digits, **{"at": at(10, minute), "parent": parent, "content": digits, **fields})
        )
    return made[::-1]


def test_restore_continues_its_source_and_a_partial_one_both_states() -> None:
    a, b, c, d, e = "aaaa", "bbbb", "cccc", "dddd", "eeee"
    full = "a" * 4 + "0" * 36
    shown = chain(
        (a, {}), (b, {}), (c, {"restore": RestoreRole.BEFORE}),
        (d, {"restore": RestoreRole.TO, "restored_from": full, "content": a}),
        (e, {"restore": RestoreRole.TO, "restored_from": b + "0" * 36}),
    )  # fmt: skip
    found = {one[:4]: tuple(p[:4] for p in before) for one, before in parents_of(shown).items()}
    assert found == {a: (), b: (a,), c: (b,), d: (a,), e: (b, d)}


def test_fork_begins_at_its_source_and_unrelated_timelines_are_apart() -> None:
    own = chain(("aaaa", {}), ("bbbb", {}))
    fork = [moment("cccc", "fork", parent=None, forked_from="bbbb" + "0" * 36, at=at(10, 9))]
    other = [moment("dddd", "other", parent=None, at=at(10, 9))]
    parents = parents_of([*own, *fork, *other])
    tied = connected([own[0].id], parents)
    assert {one[:4] for one in tied} == {"aaaa", "bbbb", "cccc"}
    assert [one.id[:4] for one in sort_for_graph([*own, *fork], parents)] == ["cccc", "bbbb", "aaaa"]


def test_snapshot_is_listed_after_its_children_whatever_the_clock() -> None:
    late = chain(("aaaa", {"at": at(23, 0)}), ("bbbb", {"at": at(1, 0)}))
    assert [one.id[:4] for one in sort_for_graph(late, parents_of(late))] == ["bbbb", "aaaa"]


def test_lane_of_an_unlisted_snapshot_continues() -> None:
    parents = {"D": ("C",), "C": ("B",), "B": ("A",), "A": ()}
    assert shown_parents("DA", parents) == {"D": ("A",), "A": ()}
