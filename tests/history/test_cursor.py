"""Undo and redo as a person expects them: back through the states, forth again, and new work ends the way forth."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from git_envhist.history.cursor import Walk, read_walk
from git_envhist.model import RestorePart, Snapshot, SnapshotId
from tests.history.moments import snapshot


class Person:
    """Works, captures, restores, undoes: the chain that comes of it, and beside it what an editor would have."""

    def __init__(self) -> None:
        self.chain: list[Snapshot] = []
        self.content = "0"
        self.states: list[str] = []
        self.at = -1

    def work(self, content: str) -> None:
        self.content = content

    def capture(self) -> None:
        self._know_present()
        self._append(None, None)

    def restore(self, content: str) -> None:
        self._save()
        self.content = content
        self._know_present()
        self._append(RestorePart.TO, self.chain[0].id)

    def undo(self, steps: int = 1) -> bool:
        stop = self.walk.back(steps, self.content)
        expected = self._expected(-steps)
        assert (stop.content if stop else None) == expected
        return self._move(stop, RestorePart.UNDO, -steps)

    def redo(self, steps: int = 1) -> bool:
        stop = self.walk.forward(steps, self.content)
        known = self.at >= 0 and self.states[self.at] == self.content
        assert (stop.content if stop else None) == (self._expected(steps) if known else None)
        return self._move(stop, RestorePart.REDO, steps)

    @property
    def walk(self) -> Walk:
        return read_walk(self.chain)

    def _expected(self, steps: int) -> str | None:
        states, at = list(self.states), self.at
        if not states or states[at] != self.content:
            states, at = [*states[: at + 1], self.content], at + 1
        return states[at + steps] if 0 <= at + steps < len(states) else None

    def _move(self, stop: Snapshot | None, part: RestorePart, steps: int) -> bool:
        if stop is None:
            return False
        self._save()
        self.at += steps
        self.content = stop.content
        self._append(part, stop.id)
        return True

    def _save(self) -> None:
        self._know_present()
        self._append(RestorePart.BEFORE, None)

    def _know_present(self) -> None:
        if self.at < 0 or self.states[self.at] != self.content:
            self.states[self.at + 1 :] = [self.content]
            self.at += 1

    def _append(self, part: RestorePart | None, source: SnapshotId | None) -> None:
        one = snapshot(f"moment {len(self.chain)}")
        self.chain.append(replace(one, content=self.content, restore=part, restored_from=source))


def test_undo_right_after_a_restore_takes_it_back() -> None:
    person = Person()
    for content in "ab":
        person.work(content)
        person.capture()
    person.work("unsaved")
    person.restore("a")
    assert person.undo()
    assert person.content == "unsaved"


def test_undo_walks_through_captures_and_redo_back_to_what_was_never_captured() -> None:
    person = Person()
    for content in "abc":
        person.work(content)
        person.capture()
    person.work("unsaved")
    seen = []
    while person.undo():
        seen.append(person.content)
    while person.redo():
        seen.append(person.content)
    assert seen == ["c", "b", "a", "b", "c", "unsaved"]


def test_of_two_steps_the_second_is_counted_from_where_the_first_arrived() -> None:
    person = Person()
    for content in ("a", "b"):
        person.work(content)
        person.capture()
    person.restore("c")
    person.work("b")
    # From what is like an earlier state to "c", and from there to that state.
    assert person.undo(2)
    assert person.content == "b"


def test_new_work_ends_the_way_forth_and_is_told() -> None:
    person = Person()
    for content in "abc":
        person.work(content)
        person.capture()
    person.undo(2)
    person.work("new")
    assert not person.redo()
    assert not person.walk.cut_off
    person.capture()
    assert not person.redo()
    assert [stop.content for stop in person.walk.cut_off] == ["b", "c"]


def test_a_capture_without_a_change_ends_nothing() -> None:
    person = Person()
    for content in "ab":
        person.work(content)
        person.capture()
    person.undo()
    person.capture()
    assert person.redo()
    assert person.content == "b"


def test_a_state_that_retention_let_go_is_known_by_where_the_undo_arrived() -> None:
    person = Person()
    for content in "abc":
        person.work(content)
        person.capture()
    person.undo(2)
    kept = [one for one in person.chain if one.content != "a" or one.restore is not None]
    here = read_walk(kept).here
    assert here is not None
    assert here.content == "a"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["work", "capture", "restore", "undo", "redo"]),
        st.sampled_from("abcd"),
        st.integers(1, 3),
    ),
    max_size=30,
)


@given(STEPS)
def test_any_series_of_steps_is_what_an_editor_would_do(steps: list[tuple[str, str, int]]) -> None:
    person = Person()
    person.capture()
    for verb, content, count in steps:
        if verb in ("work", "restore"):
            getattr(person, verb)(content)
        elif verb == "capture":
            person.capture()
        else:
            getattr(person, verb)(count)
